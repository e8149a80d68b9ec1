#!/usr/bin/env python3
"""Flips the core in one place at a time; each flip must fail a test.

    python3 checks/mutants.py            all of them
    python3 checks/mutants.py round      those whose name holds the word

Works on a copy, so the tree stays as it is. Exits with 1 if a mutant survives.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE = "crates/suimon-core/src/"

# Name, file, the text as it is, and as it must not be.
MUTANTS = [
    ("comparison: bucket and pace admit one tick later", "gcra.rs", "if ready <= now {", "if ready < now {"),
    ("comparison: bucket and pace admit one tick early", "gcra.rs", "if ready <= now {", "if ready <= now.saturating_add(1) {"),
    ("comparison: a gate admits one tick early", "rule.rs", "let at = if tick <= tick_now {", "let at = if tick <= tick_now.saturating_add(1) {"),
    ("comparison: the largest cost is too large", "gate.rs", "Some(allowed) if cost > allowed", "Some(allowed) if cost >= allowed"),
    ("comparison: one above the largest passes", "gate.rs", "Some(allowed) if cost > allowed",
     "Some(allowed) if cost > allowed.saturating_add(Cost::new(0, 1)?)"),
    ("comparison: a window entry counts a nanosecond too long", "window.rs",
     "int::nanos(now.saturating_since(self.at)) >= int::nanos(period)", "int::nanos(now.saturating_since(self.at)) > int::nanos(period)"),
    ("comparison: a fixed window admits one less", "fixed.rs", "if wanted <= rule.limit.billionths()", "if wanted < rule.limit.billionths()"),
    ("comparison: a fixed window lasts a nanosecond too long", "fixed.rs", "if now < self.end {", "if now <= self.end {"),
    ("rounding: waits down", "ticks.rs", "int::mul_div_ceil(tick, self.back_num, self.back_den)",
     "int::saturate(int::div_rem(int::widening_mul(tick, self.back_num), self.back_den).0)"),
    ("rounding: fractional costs down", "ticks.rs",
     "int::mul_div_ceil(self.per_token.get(), u64::from(cost.subsec_nanos()), BILLIONTHS)",
     "int::saturate(int::div_rem(int::widening_mul(self.per_token.get(), u64::from(cost.subsec_nanos())), BILLIONTHS).0)"),
    ("rounding: instants up to a tick", "ticks.rs", "whole.wrapping_add(part)",
     "whole.wrapping_add(part).wrapping_add(1)"),
    ("rounding: the fraction of a tick truncated", "ticks.rs", "let lower = int::div_ceil(", "let lower = int::div_floor("),
    ("rounding: remaining up", "decision.rs", "int::div(self.left, self.per_token)", "int::div(self.left.saturating_add(1), self.per_token)"),
    ("rounding: a carried debt down", "ticks.rs", "int::mul_div_ceil(ticks, to.per_token.get(), self.per_token)",
     "int::saturate(int::div_rem(int::widening_mul(ticks, to.per_token.get()), self.per_token).0)"),
    ("clamp: idling saves without bound", "gcra.rs", "Step::Admit(word.max(now).saturating_add(cost))", "Step::Admit(word.saturating_add(cost))"),
    ("clamp: bookings save without bound", "gcra.rs", "word.max(start).checked_add(cost)", "word.checked_add(cost)"),
    ("clamp: a refund may exceed what is unpaid", "rule.rs", "let back = difference.min(unpaid);", "let back = difference;"),
    ("clamp: two refunds count the same stretch", "rule.rs", "mark.word.saturating_sub(since)", "mark.word.saturating_sub(since.min(0))"),
    ("clamp: a changed limit turns savings into debt", "carry.rs",
     "old.ticks().convert(used, new.ticks()).min(new.savings().saturating_add(debt))", "old.ticks().convert(used, new.ticks())"),
    ("clamp: time runs back in a log", "window.rs", "self.entries.back().map_or(now, |last| last.at.max(now))", "now"),
    ("clamp: time runs back before the high-water mark", "time.rs", "self.0 = self.0.max(now);", "self.0 = now;"),
    ("clamp: the past is not settled when a log changes", "window.rs", "        self.forget(limit, now);\n        if self.entries", "        if self.entries"),
    ("order: charge, then refuse", "gate.rs",
     "        if let Some((status, retry)) = self.refusal(state.slots(), now, cost)? {\n            return Ok(Decision::Deny(status, retry));\n        }\n        for (rule, slot)",
     "        let refusal = self.refusal(state.slots(), now, cost)?;\n        for (rule, slot)"),
    ("order: the first refusal instead of the longest", "gate.rs", "longest.is_none_or(|longest| retry.is_longer_than(longest))", "longest.is_none()"),
    ("order: arguments after the state", "gate.rs", "        self.check(state, cost)?;\n        if let Some((status, retry))", "        if let Some((status, retry))"),
    ("kind: a pace pays first", "gcra.rs", "pace.savings(), false, pace.max_cost()", "pace.savings(), true, pace.max_cost()"),
    ("kind: a free call is charged", "rule.rs", "        if cost.is_zero() {\n            return;\n        }\n        match (self, slot) {\n            (Rule::Gcra(gcra), Slot::Word { word, .. }) => {\n                let ticks",
     "        match (self, slot) {\n            (Rule::Gcra(gcra), Slot::Word { word, .. }) => {\n                let ticks"),
    ("kind: a free call waits", "rule.rs", "(_, _) if cost.is_zero() => now,", ""),
    ("calendar: weeks begin on Sunday", "calendar.rs", "int::rem(day.saturating_add(3), WEEK)", "int::rem(day.saturating_add(4), WEEK)"),
]

# Flips that need more than a replacement of one text.
ORDER_TAIL = (
    "        Ok(Decision::Allow(self.tightest(state.slots(), now)?))\n    }\n\n    /// What [`Gate::allow`]",
    "        if let Some((status, retry)) = refusal {\n            return Ok(Decision::Deny(status, retry));\n        }\n"
    "        Ok(Decision::Allow(self.tightest(state.slots(), now)?))\n    }\n\n    /// What [`Gate::allow`]",
)
FLOOR = "\n\npub(crate) fn div_floor(a: u128, b: NonZeroU64) -> u128 {\n    div_rem(a, b).0\n}\n"


def flip(copy, name, file, before, after):
    """Applies one mutant; returns what has to be undone."""
    changes = [(file, before, after)]
    if name.startswith("order: charge"):
        changes.append((file, *ORDER_TAIL))
    undo = []
    for file, before, after in changes:
        path = copy / CORE / file
        text = path.read_text()
        if text.count(before) < 1:
            sys.exit(f"mutant `{name}`: its text is not in {file} any more")
        undo.append((path, text))
        path.write_text(text.replace(before, after, 1))
    if "div_floor" in after:
        path = copy / CORE / "int.rs"
        undo.append((path, path.read_text()))
        path.write_text(path.read_text() + FLOOR)
    return undo


def run(copy):
    command = ["cargo", "test", "--package", "suimon-core", "--package", "suimon-testkit", "--no-fail-fast"]
    # Never the target folder of the tree: the copy's packages have the same names there.
    environment = os.environ | {"CARGO_TARGET_DIR": str(copy / "target")}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    output = done.stdout + done.stderr
    if re.search(r"could not compile `suimon-core`", output):
        sys.exit(f"the mutant does not compile:\n{output[-4000:]}")
    failed = sorted(set(re.findall(r"^test (.+) \.\.\. FAILED", output, re.MULTILINE)))
    return done.returncode != 0, failed


def main():
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    survivors = []
    with tempfile.TemporaryDirectory() as temp:
        copy = pathlib.Path(temp) / "suimon"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("target", ".git", "corpus", "artifacts"))
        failed, tests = run(copy)
        if failed:
            sys.exit(f"the tests fail without any mutant: {tests}")
        for name, file, before, after in MUTANTS:
            if word not in name:
                continue
            undo = flip(copy, name, file, before, after)
            failed, tests = run(copy)
            for path, text in reversed(undo):
                path.write_text(text)
            print(f"{'caught  ' if failed else 'SURVIVED'}  {name}  ({len(tests)} tests{', such as ' + tests[0] if tests else ''})", flush=True)
            if not failed:
                survivors.append(name)
    if survivors:
        sys.exit(f"{len(survivors)} mutants survived")


if __name__ == "__main__":
    main()
