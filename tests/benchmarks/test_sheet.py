"""How figures are worded, and tables as Markdown."""

from benchmarks.sheet import Sheet, errors, ms, server_name, times


def test_servers_have_names_that_can_be_read() -> None:
    names = {"01": "stage 01", "03_stream": "stage 03, streaming", "ten_line_server": "ten-line server"}
    assert {target: server_name(target) for target in names} == names
    assert errors({"503": 2, "timeout": 1}) == "2 x 503, 1 x timeout"
    assert errors({}) == "none"


def test_a_sheet_is_markdown_too() -> None:
    sheet = Sheet("Title", ("who", "what", "much"), [("a", "b", "1"), ("c", "d", "2")])
    assert sheet.markdown("Stamp.").splitlines() == [
        "| who | what | much |",
        "| --- | --- | ---: |",
        "| a | b | 1 |",
        "| c | d | 2 |",
        "",
        "*Stamp.*",
    ]


def test_figures_are_worded_so_that_they_can_be_read() -> None:
    assert [ms(seconds) for seconds in (None, 0.0123, 0.5)] == ["-", "12.3 ms", "0.50 s"]
    assert [times(ratio) for ratio in (0.44, 2.5, 107.2)] == ["0.4 times", "2.5 times", "107 times"]
