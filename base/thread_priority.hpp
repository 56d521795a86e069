#pragma once

namespace mayfly {

/// For threads that sleep until an event and then do a little work that other threads wait for.
/// Asks the scheduler for short time slices (0.1 ms) for the calling thread, so that it need not
/// wait some milliseconds for the end of a compute thread's slice when it wakes. Its share of a
/// core does not grow, and no privilege is needed. Has an effect on Linux 6.12 and newer only.
void use_low_latency_slice();
/// The same, and also sets the name of the calling thread (at most 15 characters).
void become_low_latency_thread(const char* name);

/// From now on the calling thread runs when compute threads leave something over. For good: a
/// process without privileges cannot take it back.
void run_with_low_priority();

}  // namespace mayfly
