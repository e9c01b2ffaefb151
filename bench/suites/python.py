"""Runs one module of Python's own tests; writes an outcome for each test to the file OUT."""
import sys
import unittest

out, module = sys.argv[1:]
outcomes = {}


class Outcomes(unittest.TestResult):
    def stopTest(self, test):
        outcomes.setdefault(test.id(), "ok")
        super().stopTest(test)

    def addError(self, test, err):
        outcomes[test.id()] = "error"

    def addFailure(self, test, err):
        outcomes[test.id()] = "failure"

    def addSkip(self, test, reason):
        outcomes[test.id()] = "skipped"

    def addExpectedFailure(self, test, err):
        outcomes[test.id()] = "expected failure"

    def addUnexpectedSuccess(self, test):
        outcomes[test.id()] = "unexpected success"


tests = unittest.defaultTestLoader.loadTestsFromName("test." + module)
if unittest.defaultTestLoader.errors:
    sys.exit("\n".join(unittest.defaultTestLoader.errors))
tests.run(Outcomes())
with open(out, "w", encoding="utf-8") as file:
    file.writelines(f"{name}\t{outcome}\n" for name, outcome in sorted(outcomes.items()))
