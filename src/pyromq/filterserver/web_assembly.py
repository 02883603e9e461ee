"""Filters that are WebAssembly modules: they import nothing, so they compute, and can do nothing else.

A module exports its `memory`, `allocate(size) -> place` and `match(place, body_size, properties_size)`, which
returns 0 or 1. A message is at that place until then: its body, then its properties as they are stored.
"""

from typing import TYPE_CHECKING, Final

from pyromq.client.values import ReceivedMessage
from pyromq.filterserver.exchange import MODULE_BEGIN, BadFilter, Match

if TYPE_CHECKING:
    import wasmtime

_SMALLEST: Final = MODULE_BEGIN + bytes.fromhex("01000000 0104016000000302010007050101660000 0a040102000b")
"""A module with a function `f` that does nothing."""
_UNSIGNED: Final = 0xFFFF_FFFF


class WebAssembly:
    """Compiles modules. Once made and tried, it needs no signal handlers, threads or files any more."""

    def __init__(self, memory_bytes: int) -> None:
        """Raises BadFilter if the runtime is not installed."""
        try:
            import wasmtime
            from wasmtime import _bindings  # `Config` has no names for these
        except ImportError as problem:
            raise BadFilter(f"filters in WebAssembly need `pip install pyromq[wasm]`: {problem}") from None
        self._wasmtime = wasmtime
        self._memory_bytes = memory_bytes
        config = wasmtime.Config()
        config.parallel_compilation = False
        config.wasm_threads = False
        # A module's memory takes the addresses that it has, not all that it could have; no signals guard it.
        _bindings.wasmtime_config_memory_reservation_set(config.ptr(), 0)
        _bindings.wasmtime_config_memory_reservation_for_growth_set(config.ptr(), 0)
        _bindings.wasmtime_config_memory_guard_size_set(config.ptr(), 0)
        _bindings.wasmtime_config_memory_init_cow_set(config.ptr(), False)
        _bindings.wasmtime_config_signals_based_traps_set(config.ptr(), False)
        self._engine = wasmtime.Engine(config)
        # What the runtime does once for a process must be done before the process is confined.
        store = wasmtime.Store(self._engine)
        instance = wasmtime.Instance(store, wasmtime.Module(self._engine, _SMALLEST), [])
        function = instance.exports(store)["f"]
        assert isinstance(function, wasmtime.Func)
        function(store)

    def __repr__(self) -> str:
        return f"<WebAssembly memory_bytes={self._memory_bytes}>"

    def loaded(self, source: bytes) -> Match:
        """The module's `match`, for whole messages; raises BadFilter, and the runtime's errors."""
        module = self._wasmtime.Module(self._engine, source)
        if imported := [f"{each.module}.{each.name}" for each in module.imports]:
            raise BadFilter(f"the module imports {', '.join(imported)}: filters get nothing to import")
        store = self._wasmtime.Store(self._engine)
        store.set_limits(memory_size=self._memory_bytes // 2, instances=1, tables=4, memories=1)
        exports = self._wasmtime.Instance(store, module, []).exports(store)
        memory = exports.get("memory")
        if not isinstance(memory, self._wasmtime.Memory):
            raise BadFilter("the module exports no memory")
        allocate = self._function(exports.get("allocate"), "allocate", 1, store)
        match = self._function(exports.get("match"), "match", 3, store)
        initialize = exports.get("_initialize")
        if isinstance(initialize, self._wasmtime.Func):  # the constructors of languages that have some
            initialize(store)

        def matches(message: ReceivedMessage) -> bool:
            body, properties = message.body, message.raw_properties
            content = body + properties
            place = allocate(store, len(content)) & _UNSIGNED
            if place + len(content) >= memory.data_len(store):
                raise BadFilter(f"allocate returned {place}: there is no room in the module's memory")
            memory.write(store, content, place)
            verdict = match(store, place, len(body), len(properties))
            if verdict not in (0, 1):
                raise BadFilter(f"match returned {verdict}, not 0 or 1")
            return bool(verdict)

        return matches

    def _function(self, exported: object, name: str, count: int, store: "wasmtime.Store") -> "wasmtime.Func":
        i32 = self._wasmtime.ValType.i32()
        if isinstance(exported, self._wasmtime.Func):
            type_ = exported.type(store)
            if type_.params == [i32] * count and type_.results == [i32]:
                return exported
        takes = ", ".join(["i32"] * count)
        raise BadFilter(f"the module exports no function {name}({takes}) -> i32")

    def in_words(self, problem: BaseException) -> str | None:
        """The text of the runtime's error; None if it is not the runtime's."""
        if not isinstance(problem, self._wasmtime.Trap | self._wasmtime.WasmtimeError):
            return None
        before, _, cause = str(problem).rpartition("Caused by:")
        first = "" if isinstance(problem, self._wasmtime.Trap) else before.strip().split("\n")[0]
        return ": ".join(part for part in (first, " ".join(cause.split())) if part)
