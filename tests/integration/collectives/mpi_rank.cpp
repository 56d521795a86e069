#include "tests/integration/collectives/mpi_rank.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>

#include "collectives/transport_module.hpp"
#include "tests/integration/collectives/test_cluster.hpp"

namespace mayfly::collectives::test {
namespace {

MpiRank* the_rank = nullptr;

std::uint32_t number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

[[noreturn]] void give_up(const std::string& why) {
  std::printf("cannot start: %s\n", why.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

SharedPage* map_page(const char* file) {
  const int fd = ::open(file, O_RDWR | O_CLOEXEC);
  void* memory =
      fd < 0 ? MAP_FAILED
             : ::mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    give_up(std::string("no shared page in ") + file);
  }
  ::close(fd);
  return static_cast<SharedPage*>(memory);
}

// The address of another rank, derived from this rank's own.
std::string address_of(const std::string& own, std::uint32_t rank) {
  return own.substr(0, own.rfind(':') + 1) + std::to_string(rank);
}

}  // namespace

MpiRank& MpiRank::start(const char* page_file) {
  static MpiRank self;
  the_rank = &self;
  self.rank_ = number_of("OMPI_COMM_WORLD_RANK");
  self.size_ = number_of("OMPI_COMM_WORLD_SIZE");
  self.elastic_ = number_of("OMPI_MCA_orte_enable_recovery") == 1;
  self.page_ = map_page(page_file);
  const Result<const TransportModule*> module = load_transport_module("mpi");
  if (!module.ok()) {
    give_up(module.error().detail);
  }
  if (const Result<void> usable = module.value()->probe(); !usable.ok()) {
    give_up(usable.error().detail);
  }
  Result<std::unique_ptr<Transport>> made = module.value()->make({});
  if (!made.ok()) {
    give_up(made.error().detail);
  }
  self.transport_ = std::move(made).value();
  self.sockets_at_start_ = sockets();
  return self;
}

std::size_t MpiRank::sockets() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // set for the descriptor of the folder itself
    const std::string target = std::filesystem::read_symlink(entry, closed);
    count += target.starts_with("socket:") ? 1 : 0;
  }
  return count;
}

MpiRank& MpiRank::get() {
  return *the_rank;
}

std::vector<std::uint32_t> MpiRank::everybody() const {
  std::vector<std::uint32_t> all(size_);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

GroupSpec MpiRank::next_spec(const std::vector<std::uint32_t>& members) {
  GroupSpec spec;
  spec.view = ViewId{++view_};
  spec.key = view_ * 1000 + 7;
  for (const std::uint32_t m : members) {
    if (m == rank_) {
      spec.rank = static_cast<Rank>(spec.peers.size());
    }
    spec.peers.push_back({member(m), address_of(transport_->address(), m)});
  }
  return spec;
}

std::unique_ptr<Group> MpiRank::form(const std::vector<std::uint32_t>& members) {
  const GroupSpec spec = next_spec(members);
  if (std::find(members.begin(), members.end(), rank_) == members.end()) {
    return nullptr;
  }
  Result<std::unique_ptr<Group>> formed = transport_->form(spec, far());
  if (!formed.ok()) {
    give_up("view " + std::to_string(value(spec.view)) + ": " + formed.error().detail);
  }
  return std::move(formed).value();
}

void MpiRank::meet(const std::vector<std::uint32_t>& members) {
  const std::uint64_t count = ++page_->meetings[rank_];
  for (const std::uint32_t m : members) {
    while (page_->meetings[m] < count) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

}  // namespace mayfly::collectives::test
