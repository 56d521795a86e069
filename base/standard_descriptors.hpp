#pragma once

namespace mayfly {

/// Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed. First thing in main: the
/// next pipe, socket or file that is opened would else be standard input, output or error, and what
/// is printed would go there. Only makes system calls, so a forked child may call it. Without a
/// /dev/null they stay closed.
void open_closed_standard_descriptors();

}  // namespace mayfly
