#pragma once

// The child process of MemberProcess. It reads commands on standard input and answers on standard
// output. Operations run on a second thread, so that "abort" is read at any time.
//
//   form VIEW RANK ID...      -> "formed MS" or "failed CODE TEXT"
//   check                     every operation of the port, several sizes and types, each result
//                             compared element by element -> "right" or the error
//   streams                   an operation that follows a stream and is followed by it -> as check
//   sum COUNT                 one all-reduce of int32, checked -> "sum MS" or the error
//   reduce COUNT              all-reduces until one fails -> "reducing", then "failed CODE TEXT"
//   abort VIEW                gives up VIEW and aborts the group; no answer
//   leave                     destroys the group -> "left"
//   footprint                 -> "footprint DEVICE_BYTES DESCRIPTORS THREADS"

#include <string>

namespace mayfly::collectives::gpu_test {

/// Runs a member whose group meets in `folder`; returns the exit code.
int run_member(const std::string& folder);

}  // namespace mayfly::collectives::gpu_test
