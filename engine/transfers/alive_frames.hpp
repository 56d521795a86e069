#pragma once

// Shows the other side of a transfer that this process is alive while it prepares its next message,
// as when it reads a checkpoint of many gigabytes from a slow disk.

#include <condition_variable>
#include <mutex>
#include <thread>

namespace mayfly::engine {

/// Sends an empty frame every few seconds while this object exists, on a thread of its own. Nothing
/// else may be sent meanwhile.
class AliveFrames {
 public:
  explicit AliveFrames(int fd) : thread_([this, fd] { run(fd); }) {}
  ~AliveFrames();
  AliveFrames(const AliveFrames&) = delete;
  AliveFrames& operator=(const AliveFrames&) = delete;

 private:
  void run(int fd);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace mayfly::engine
