#include "nn/cuda/device_claim.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/parse.hpp"

namespace mayfly::nn::cuda {

Result<DeviceClaim> DeviceClaim::take(const std::string& folder, const std::string& bus) {
  std::string name = bus;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ':' || c == '/'; }, '-');
  const std::string path = fmt::format("{}/mayfly-gpu-{}.lock", folder, name);
  int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0 && errno == EACCES) {  // another user's: a lock needs no permission to write
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  }
  if (descriptor < 0) {
    return Error{Errc::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  }
  UniqueFd lock(descriptor);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{Errc::kRefused, fmt::format("another worker uses the GPU at {}", bus)};
  }
  return DeviceClaim(std::move(lock));
}

int local_number() {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    const char* const text = std::getenv(name);
    if (const auto number = number_in(text == nullptr ? "" : text, 0, 1023)) {
      return *number;
    }
  }
  return -1;
}

}  // namespace mayfly::nn::cuda
