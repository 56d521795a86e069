#include "engine/run/ledger.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/file.hpp"
#include "base/log.hpp"

namespace mayfly::engine {

Ledger::Ledger(const std::string& folder) {
  const std::string path = fmt::format("{}/{}.txt", folder, ::getpid());
  const Result<void> made = make_directories(folder);
  if (made.ok()) {
    file_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }
  if (!file_.valid()) {
    log::warning(fmt::format("cannot write the ledger {}; continuing without it", path));
  }
}

void Ledger::computed(std::uint64_t step, std::uint32_t microbatch,
                      std::span<const std::uint32_t> samples) {
  const std::string line = fmt::format("{} {} {}\n", step, microbatch, fmt::join(samples, " "));
  const std::lock_guard lock(mutex_);
  if (file_.valid() && ::write(file_.get(), line.data(), line.size()) < 0) {
    log::warning("the ledger cannot be written any more; continuing without it");
    file_.reset();
  }
}

}  // namespace mayfly::engine
