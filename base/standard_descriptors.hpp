#pragma once

namespace mayfly {

/// Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed. Called first in main,
/// because otherwise the next pipe, socket or file that is opened would become standard input,
/// output or error, and receive what is printed. Makes system calls only, so a forked child may
/// call it. If /dev/null does not exist, the descriptors stay closed.
void open_closed_standard_descriptors();

}  // namespace mayfly
