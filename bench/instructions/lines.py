"""Counts the cache lines that a turn touches: `tests/instructions --lines`.

Runs inside gdb. It steps through turns of one side of one case, computes the address of every memory operand, and counts
distinct lines of 64 bytes: of the engine with the test program, and of the provider. x86-64 only.
"""
import os
import re
import subprocess

import gdb

PROGRAM, SIDE, CASE = (os.environ[name] for name in ("PROGRAM", "SIDE", "CASE"))
SKIPPED, TURNS = 20, 4
LINE = 64

REGISTER_SIZES = [
    (r"zmm\d+", 64), (r"ymm\d+", 32), (r"xmm\d+", 16), (r"e[a-z]{2}|r\d+d", 4),
    (r"[a-d][lh]|[sd]il|[sb]pl|r\d+b", 1), (r"[a-d]x|[sd]i|[sb]p|r\d+w", 2),
]
OPERAND = re.compile(r"(%fs:)?(-?0x[0-9a-f]+)?\(([^)]*)\)|%fs:(-?0x[0-9a-f]+)")
PREFIXES = re.compile(r"\b(rep|repz|repnz|lock|notrack|bnd|data16|cs)\s+")
READ_ONLY = ("cmp", "test", "bt", "j", "prefetch", "call", "vptest", "ucom", "vucom", "mul", "div")


def symbols(part):
    """The addresses of the functions whose names contain `part`."""
    listed = subprocess.run(["nm", PROGRAM], text=True, capture_output=True, check=True).stdout
    rows = (line.split() for line in listed.splitlines())
    return [int(row[0], 16) for row in rows if len(row) == 3 and row[1] in "tT" and part in row[2]]


def size_of(mnemonic, operands):
    """The bytes that a memory operand has."""
    widened = re.fullmatch(r"mov[sz]([bwl])[wlq]", mnemonic)
    if widened:
        return {"b": 1, "w": 2, "l": 4}[widened[1]]
    if re.fullmatch(r"v?mov(q|sd|lps|hps|hpd)", mnemonic):
        return 8
    if re.fullmatch(r"v?mov(d|ss)", mnemonic):
        return 4
    for register in re.findall(r"%(\w+)", re.sub(r"\([^)]*\)", "", operands)):
        for pattern, size in REGISTER_SIZES:
            if re.fullmatch(pattern, register):
                return size
        return 8
    return {"b": 1, "w": 2, "l": 4}.get(mnemonic[-1], 8)


def accesses(pc):
    """What the instruction at `pc` touches: base, index, scale, offset, bytes, whether it is written."""
    instruction = ARCHITECTURE.disassemble(pc)[0]
    text = PREFIXES.sub("", re.sub(r"<[^>]*>", "", instruction["asm"]).split("#")[0].strip())
    mnemonic, _, operands = text.partition(" ")
    operands = operands.strip()
    if mnemonic.startswith(("nop", "lea", "endbr")):
        return []
    if re.fullmatch(r"(movs|stos)[blq]", mnemonic) and "%rdi" in operands:
        return [("rdi", None, 1, 0, 1, True)] + [("rsi", None, 1, 0, 1, False)] * mnemonic.startswith("movs")
    found = []
    if mnemonic.startswith(("push", "call")):
        found.append(("rsp", None, 1, -8, 8, True))
    elif mnemonic.startswith(("pop", "ret")):
        found.append(("rsp", None, 1, 0, 8, False))
    for operand in OPERAND.finditer(operands):
        is_written = operands.endswith(operand[0]) and not mnemonic.startswith(READ_ONLY)
        offset = int(operand[2] or operand[4] or "0", 16)
        base, index, scale = ([part.strip(" %") for part in (operand[3] or "").split(",")] + ["", ""])[:3]
        if base == "rip":
            base, offset = None, offset + pc + instruction["length"]
        if operand[1] or operand[4]:
            # A thread's own variables begin at fs_base, and none of these has a base of its own.
            base = base or "fs_base"
        found.append((base, index, int(scale or 1), offset, size_of(mnemonic, operands), is_written))
    return found


def register(frame, name):
    return int(frame.read_register(name)) & (1 << 64) - 1


def turn(known, outside):
    """Steps through one turn: for the engine and the provider, the instructions and the lines."""
    start = register(gdb.newest_frame(), "rsp")
    sides = [{"instructions": 0, "lines": set(), "written": set()} for _ in range(2)]
    left_at = None
    while True:
        frame = gdb.newest_frame()
        pc, sp = register(frame, "rip"), register(frame, "rsp")
        if sp > start:
            return sides
        if left_at is not None and sp > left_at:
            left_at = None
        if left_at is None and pc in outside:
            left_at = sp
        side = sides[left_at is not None]
        side["instructions"] += 1
        if pc not in known:
            known[pc] = accesses(pc)
        for base, index, scale, offset, size, is_written in known[pc]:
            at = offset + (register(frame, base) if base else 0)
            at = at + (register(frame, index) * scale if index else 0) & (1 << 64) - 1
            lines = range(at // LINE, (at + size - 1) // LINE + 1)
            side["lines"].update(lines)
            if is_written:
                side["written"].update(lines)
        gdb.execute("stepi", to_string=True)


for setting in ("pagination off", "confirm off", "logging file /dev/null", "logging redirect on"):
    gdb.execute(f"set {setting}", to_string=True)
gdb.execute(f"file {PROGRAM}")
gdb.execute(f"starti --run {SIDE} apart > /dev/null", to_string=True)
with open(f"/proc/{gdb.selected_inferior().pid}/maps") as maps:
    loaded = next(int(line.split("-")[0], 16) for line in maps if PROGRAM in line)
ARCHITECTURE = gdb.newest_frame().architecture()
for address in symbols("begin_part"):
    gdb.execute(f"break *{address + loaded}", to_string=True)
for _ in range(int(CASE)):
    gdb.execute("continue", to_string=True)
gdb.execute("delete")
outside, known = {address + loaded for address in symbols("outside_")}, {}
turns = [address + loaded for address in symbols(f"{SIDE}_turn")]
for at in range(SKIPPED + TURNS):
    for address in turns:
        gdb.execute(f"tbreak *{address}", to_string=True)
    gdb.execute("continue", to_string=True)
    gdb.execute("delete")
    if at >= SKIPPED:
        engine, provider = turn(known, outside)
        for name, side in (("engine", engine), ("provider", provider)):
            lines, written = len(side["lines"]), len(side["written"])
            print(f"{SIDE} {name}: {side['instructions']} instructions, {lines} lines, {written} written")
gdb.execute("kill")
