"""Parts of this stage that are broken on purpose, one file a fault; `flo faults 01` lists them."""
