"""The former name of ``runner.reduce.remove_steps``, for modules that still import from here."""

from runner.reduce.remove_steps import ValueInfos

Facts = ValueInfos
