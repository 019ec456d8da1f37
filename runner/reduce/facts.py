"""The former name of ``runner.reduce.value_info``, for modules that still import from here."""

from runner.reduce.value_info import ValueInfo

Fact = ValueInfo
