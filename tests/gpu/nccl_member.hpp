#pragma once

// The other side of MemberProcess. Lines on standard input, answers on standard output; operations
// run on a second thread, so that "abort" is heard at any time.
//
//   form VIEW RANK ID...      -> "formed MS" or "failed CODE TEXT"
//   check                     every operation of the port, several sizes and types, each result
//                             compared element by element -> "right" or what was wrong
//   streams                   an operation that follows a stream and is followed by it -> as check
//   sum COUNT                 one all-reduce of int32, checked -> "sum MS" or what was wrong
//   reduce COUNT              all-reduces until one fails -> "reducing", then "failed CODE TEXT"
//   abort VIEW                gives up on VIEW and aborts the group; no answer
//   leave                     destroys the group -> "left"
//   footprint                 -> "footprint DEVICE_BYTES DESCRIPTORS THREADS"

#include <string>

namespace mayfly::collectives::gpu_test {

/// Runs a member whose group meets in `folder`; returns the exit code.
int run_member(const std::string& folder);

}  // namespace mayfly::collectives::gpu_test
