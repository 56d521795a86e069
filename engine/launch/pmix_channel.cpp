// PMIx through its library, loaded at run time: machines whose launcher supports PMIx have the
// library, and others do not need it. Mayfly uses only the interface of version 2 of the standard,
// so its few types are declared here.

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/signals_blocked.hpp"
#include "engine/launch/rank_channel.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kNamespaceSize = 256;
constexpr std::size_t kKeySize = 512;
constexpr std::uint16_t kTypeString = 3;
constexpr std::uint8_t kScopeGlobal = 3;
constexpr Duration kInitTimeout = seconds(20);

struct Process {
  char name_space[kNamespaceSize];
  std::uint32_t rank;
};

struct Value {
  std::uint16_t type;
  union {
    char* string;
    char reserved[64];  // more than any version's largest alternative
  } data;
};

struct Library {
  int (*init)(Process*, void* info, std::size_t infos);
  int (*put)(std::uint8_t scope, const char* key, Value*);
  int (*commit)();
  int (*get)(const Process*, const char* key, const void* info, std::size_t infos, Value**);
  int (*finalize)(const void* info, std::size_t infos);
};

std::optional<Library> load() {
  // The library's components are libraries of their own that need its symbols.
  void* handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    return std::nullopt;
  }
  Library library{};
  const auto find = [handle](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    return function != nullptr;
  };
  const bool has_all = find("PMIx_Init", library.init) && find("PMIx_Put", library.put) &&
                       find("PMIx_Commit", library.commit) && find("PMIx_Get", library.get) &&
                       find("PMIx_Finalize", library.finalize);
  return has_all ? std::optional(library) : std::nullopt;
}

/// Runs a call that may block for ever on a thread of its own, which is then left behind. The call
/// may share with its caller only objects that it keeps alive itself.
class Attempt {
 public:
  explicit Attempt(std::function<int()> call) : shared_(std::make_shared<Shared>()) {
    std::thread([shared = shared_, call = std::move(call)] {
      const int code = call();
      const std::lock_guard lock(shared->mutex);
      shared->code = code;
      shared->changed.notify_all();
    }).detach();
  }
  /// The call's result; nothing if it takes too long.
  [[nodiscard]] std::optional<int> wait(Instant deadline) const {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(lock, deadline - monotonic_now(),
                              [this] { return shared_->code.has_value(); });
    return shared_->code;
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<int> code;  // guarded by mutex
  };
  std::shared_ptr<Shared> shared_;
};

Error failed(const char* what, int code) {
  return {Errc::kIo, fmt::format("{} of the launcher's PMIx failed with {}", what, code)};
}

std::array<char, kKeySize> key() {
  std::array<char, kKeySize> padded{};
  std::strcpy(padded.data(), "mayfly.meeting");
  return padded;
}

class PmixChannel final : public RankChannel {
 public:
  PmixChannel(Library library, const Process& self) : library_(library), self_(self) {}
  /// Without finalize() the launcher may treat the process as dead.
  ~PmixChannel() override {
    const SignalsBlocked blocked;
    (void)Attempt([library = library_] {
      return library.finalize(nullptr, 0);
    }).wait(monotonic_now() + kInitTimeout);
  }

  Result<void> publish(const std::string& text) override {
    const SignalsBlocked blocked;
    std::string copy = text;
    Value value{};
    value.type = kTypeString;
    value.data.string = copy.data();
    if (const int code = library_.put(kScopeGlobal, key().data(), &value); code != 0) {
      return failed("PMIx_Put", code);
    }
    const int code = library_.commit();
    return code == 0 ? Result<void>() : Result<void>(failed("PMIx_Commit", code));
  }

  Result<std::string> receive(Instant deadline) override {
    const SignalsBlocked blocked;
    Process first = self_;
    first.rank = 0;
    auto text = std::make_shared<std::string>();
    const std::optional<int> code =
        Attempt([text, first, library = library_] {
          Value* found = nullptr;
          const int result = library.get(&first, key().data(), nullptr, 0, &found);
          if (result == 0 && found != nullptr && found->type == kTypeString) {
            *text = found->data.string;
          }
          return result;
        }).wait(deadline);
    if (!code) {
      return Error{Errc::kDeadline, "rank 0 has not sent the coordinator's address"};
    }
    return *code == 0 ? Result<std::string>(*text) : Result<std::string>(failed("PMIx_Get", *code));
  }

 private:
  Library library_;
  Process self_;
};

}  // namespace

Result<std::unique_ptr<RankChannel>> open_pmix_channel() {
  const std::optional<Library> library = load();
  if (!library) {
    return Error{Errc::kUnsupported, "this machine has no PMIx library (libpmix.so.2)"};
  }
  const SignalsBlocked blocked;
  auto self = std::make_shared<Process>();
  const std::optional<int> code = Attempt([self, init = library->init] {
                                    return init(self.get(), nullptr, 0);
                                  }).wait(monotonic_now() + kInitTimeout);
  if (!code || *code != 0) {
    return failed("PMIx_Init", code.value_or(-1));
  }
  return std::unique_ptr<RankChannel>(std::make_unique<PmixChannel>(*library, *self));
}

}  // namespace mayfly::engine
