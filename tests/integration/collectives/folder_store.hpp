#pragma once

#include <string>
#include <thread>
#include <utility>

#include "base/file.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"

namespace mayfly::collectives {

/// A rendezvous in a folder: one file for each key, polled.
class FolderStore final : public RendezvousStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  Result<void> set(const std::string& key, ByteSpan value) override {
    return write_file_atomic(path_of(key), value);
  }
  Result<Bytes> get(const std::string& key, Instant deadline) override {
    constexpr std::size_t kBytesMax = 1 << 20;
    while (true) {
      Result<Bytes> read = read_file(path_of(key), kBytesMax);
      if (read.ok()) {
        return read;
      }
      if (monotonic_now() >= deadline) {
        return Error{Errc::kDeadline, "nobody has set " + key};
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

 private:
  std::string path_of(std::string key) const {
    for (char& c : key) {
      c = c == '/' ? '_' : c;
    }
    return folder_ + "/" + key;
  }
  std::string folder_;
};

}  // namespace mayfly::collectives
