#pragma once

namespace mayfly {

/// For threads that sleep until something happens and then have a moment's work that others wait
/// for: from now on the calling thread asks the scheduler for short turns (0.1 ms), so that when it
/// wakes it need not wait for the end of a computing thread's turn, some milliseconds. It gets no
/// larger share of a core by that, and needs no privilege. Linux 6.12 or newer; elsewhere nothing
/// happens.
void use_low_latency_slice();
/// The same, and the calling thread gets this name, of at most 15 characters.
void become_low_latency_thread(const char* name);

}  // namespace mayfly
