"""The server that everybody writes first: load a model, call `generate` in a route, return the text.

With one user it is fine. The route is a plain function, so FastAPI runs it on one of forty threads, and with fifty
users forty calls of `generate` fight over the processor and the GIL.
"""

import os

from fastapi import Body, FastAPI
from transformers import AutoModelForCausalLM, AutoTokenizer

app = FastAPI()
tokenizer = AutoTokenizer.from_pretrained(os.environ["MODEL"])
model = AutoModelForCausalLM.from_pretrained(os.environ["MODEL"])


@app.post("/basic_generate")
def generate(prompt: str = Body(), max_new_tokens: int = Body(50), ignore_eos: bool = Body(False)) -> dict[str, str]:
    ids = tokenizer(prompt, return_tensors="pt")
    stop = {"eos_token_id": None} if ignore_eos else {}
    out = model.generate(**ids, max_new_tokens=max_new_tokens, do_sample=False, **stop)  # pyright: ignore
    return {"generated_text": tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)}
