from __future__ import annotations

import ast
import subprocess

import pytest
import yaml

from runner import quote

HOSTILE = [
    "x\nimport os; os.system('id')",
    "x\r\nimport os",
    'x"; import os; "',
    "x'; import os; '",
    '"""\nimport os\n"""',
    "x\\",
    "\x1b[2J\x00\x07\x9b",
    "\u202e\u2066\u2028\u2029\x0c\x0b\x85",
    "\ud800",
    "$(touch pwned) `touch pwned` ; touch pwned & | > pwned",
    "#{}%s{0}",
    "</script><img src=x onerror=alert(1)>",
    "``` ```` `",
    "| [a](javascript:x) @everyone #1",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_literal_is_one_expression_that_means_the_value(text: str) -> None:
    for value in (text, [text, {text: (text, None)}]):
        output = quote.literal(value)
        assert ast.literal_eval(output) == ([text, {text: [text, None]}] if isinstance(value, list) else text)
        assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "output"),
    [(None, "None"), (True, "True"), (-3, "-3"), (1e-3, "0.001"), (float("nan"), 'float("nan")'), (-float("inf"), 'float("-inf")'), (1 + 2j, "(1.0+2.0j)"),
     (complex(0.0, -2.0), "(0.0-2.0j)"), (complex(-0.0, 1.0), 'complex("(-0+1j)")'), (complex(1.0, -0.0), 'complex("(1-0j)")'),
     (complex(float("nan"), -float("inf")), 'complex("(nan-infj)")')],
)  # fmt: skip
def test_numbers(value: object, output: str) -> None:
    assert quote.literal(value) == output


@pytest.mark.parametrize("real", [0.0, -0.0, 1.5, -2e300, float("inf"), float("nan")])
@pytest.mark.parametrize("imag", [0.0, -0.0, 1.5, -2e300, -float("inf"), float("nan")])
def test_a_complex_number_keeps_both_signs(real: float, imag: float) -> None:
    value = eval(quote.literal(complex(real, imag)))
    assert (repr(value.real), repr(value.imag)) == (repr(real), repr(imag))


def test_an_object_is_no_literal() -> None:
    class Number(int):
        def __repr__(self) -> str:
            return "os.system('id')"

    assert quote.literal(Number(3)) == quote.integer(Number(3)) == "3"
    for value in (object(), b"bytes", {1, 2}):
        with pytest.raises(quote.QuoteError):
            quote.literal(value)
    for value in (True, "1", 1.0, None):
        with pytest.raises(quote.QuoteError):
            quote.integer(value)


@pytest.mark.parametrize("name", ["a b", "a.b c", "1a", "class", "a.class", "", "a.", "é", "a\n", "a()", None, 3])
def test_no_name(name: object) -> None:
    with pytest.raises(ValueError, match="no Python"):
        quote.dotted_name(name)
    with pytest.raises(ValueError, match="no Python"):
        quote.identifier(name)


def test_names() -> None:
    assert quote.dotted_name("torch._inductor.config.x") == "torch._inductor.config.x"
    assert quote.identifier("make_model") == "make_model"
    with pytest.raises(ValueError, match="no Python identifier"):
        quote.identifier("a.b")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_comment_is_one_line(text: str) -> None:
    output = quote.comment(text)
    assert len(output.splitlines()) == 1
    assert ast.parse(output).body == []


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\x00" not in text and "\ud800" not in text])
def test_a_shell_word_is_one_word_that_means_the_text(text: str) -> None:
    output = quote.shell_word(text)
    assert len(output.splitlines()) == 1 and "\x1b" not in output
    shell = subprocess.run(
        ["bash", "-c", f"printf %s {output}"], capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=True
    )
    assert shell.stdout.decode() == text


@pytest.mark.parametrize("text", HOSTILE)
def test_inline_code_ends_where_it_should(text: str) -> None:
    output = quote.markdown_code(text)
    fence = output[: len(output) - len(output.lstrip("`"))]
    assert output.endswith(fence) and fence not in output[len(fence) : -len(fence)].strip("` ").split(" ")
    assert len(output.splitlines()) == 1


def test_markdown_text_has_no_markup() -> None:
    assert quote.markdown_text("[a](b) <i> @x #1 | *b*\n`c`") == r"\[a\](b) \<i\> \@x \#1 \| \*b\*\\n\`c\`"


def test_a_fence_is_longer_than_what_it_holds() -> None:
    assert quote.markdown_fence("a ```` b") == "`````"
    assert quote.markdown_fence("a") == "```"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_docstring_ends_where_it_should(text: str) -> None:
    (statement,) = ast.parse(f'"""{quote.docstring(text)}"""').body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@pytest.mark.parametrize("text", [text for text in HOSTILE if text != "\ud800"])
def test_yaml_reads_the_text_again(text: str) -> None:
    assert yaml.safe_load(quote.yaml_text(text)) == text
    assert len(quote.yaml_text(text).splitlines()) == 1


def test_decimals_and_names_of_torch() -> None:
    assert [quote.decimal(value) for value in (120.0, 60, 0.5, 1e9)] == ["120", "60", "0.5", "1e+09"]
    for value in ("1", None, True, float("nan"), float("inf")):
        with pytest.raises(quote.QuoteError, match="no finite number"):
            quote.decimal(value)
    assert quote.torch_name("float16") == "torch.float16"
    assert quote.torch_flag("torch._inductor.config.cpp.simdlen") == "torch._inductor.config.cpp.simdlen"
    for name in ("os.environ", "torch", "torchx.y", "torch.a b"):
        with pytest.raises(quote.QuoteError):
            quote.torch_flag(name)


@pytest.mark.parametrize(
    "words", [["a b"], ["it's", "x"], ["\x1b[2J"], ["a\n'b\\"], ["\udc80"], ["--python", "/bin/x"]]
)
def test_a_command_is_known_by_its_words(words: list[str]) -> None:
    line = quote.shell_words(["runner", "run", *words])
    assert quote.command_words(line) == ["runner", "run", *map(quote.shell_word, words)]


@pytest.mark.parametrize(
    "tail",
    ["; id", " $(id)", " `id`", " | sh", " & id", " > x", "\nid", ' "$(id)"', " '", " $'a", " \u202e", " ~", " *"],
)
def test_what_a_shell_would_do_is_no_command(tail: str) -> None:
    assert quote.command_words("runner run a.spec.yaml") == ["runner", "run", "a.spec.yaml"]
    assert quote.command_words(f"runner run a.spec.yaml{tail}") == quote.command_words(f"id{tail}") == []


@pytest.mark.parametrize("order", ["7", "0", "4294967295", "random"])
def test_an_order_of_sets_may_stand_before_a_command(order: str) -> None:
    words = [f"PYTHONHASHSEED={order}", "runner", "run", "a.spec.yaml"]
    assert quote.command_words(quote.shell_words(words)) == words


@pytest.mark.parametrize(
    "start", ["PATH=.", "PYTHONHASHSEED=$(id)", "PYTHONHASHSEED=x", "PYTHONHASHSEED=1 PATH=.", "PYTHONHASHSEED="]
)
def test_no_other_variable_may_stand_before_a_command(start: str) -> None:
    assert quote.command_words(f"{start} runner run a.spec.yaml") == []


def test_a_path_is_no_option_and_a_byte_is_a_byte() -> None:
    assert (quote.operand("--x.spec.yaml::a"), quote.operand("x-y")) == ("./--x.spec.yaml::a", "x-y")
    assert quote.shell_word("a\udcff") == "$'a\\xff'"


def test_markdown_for_tables_and_addresses() -> None:
    assert (quote.markdown_cell("a`b"), quote.markdown_cell("a\\|b"), quote.markdown_cell("")) == (
        "``a`b``",
        r"a\\\|b",
        "",
    )
    assert quote.markdown_address("https://x.org/a?b=1#c") == "https://x.org/a?b=1#c"
    assert quote.markdown_address("javascript:x") == "javascript:x"
    assert quote.markdown_address("https://x.org/) [a](b)") == r"https\://x.org/) \[a\](b)"
    assert quote.markdown_text("www.x.org GH-1 $a$ -b") == r"www\.x.org GH\-1 \$a\$ -b"


@pytest.mark.parametrize("word", ["a\n' ; echo INJECTED #", "'\x1b'", "\\'\n$(id)`id`", "\u202e'\\", "\n'\n'"])
def test_a_shell_without_the_dollar_form_sees_one_word_too(word: str) -> None:
    output = quote.shell_word(word)
    shell = subprocess.run(["sh", "-c", f"set -- {output}; echo $#"], capture_output=True, text=True, check=True)
    assert shell.stdout == "1\n" and shell.stderr == ""


@pytest.mark.parametrize("text", HOSTILE)
def test_a_workflow_command_is_one_line_whose_parts_stay_apart(text: str) -> None:
    command = quote.workflow_command(
        "error", f"{text}\n::error::{text}", file=text, line=3, title=f"{text}::,line=9", col=None
    )
    assert len(command.splitlines()) == 1 and command.startswith("::error file=")
    head, _, message = command.removeprefix("::").partition("::")
    names = [pair.partition("=")[0] for pair in head.removeprefix("error ").split(",")]
    assert names == ["file", "line", "title"] and "%0A::error::" in message
    assert quote.workflow_command("notice", "100%") == "::notice::100%25"
