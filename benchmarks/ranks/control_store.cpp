#include "benchmarks/ranks/control_store.hpp"

#include <charconv>
#include <utility>

namespace mayfly::bench {
namespace {

Result<Bytes> bytes_of_hex(const std::string& text) {
  Bytes bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned value = 0;
    const char* digits = text.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) {
      return Error{Errc::kCorrupt, "the store's answer is not hexadecimal: " + text};
    }
    bytes[i] = static_cast<std::byte>(value);
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<ControlStore>> ControlStore::connect(const std::string& path,
                                                            const std::string& name) {
  Result<LineSocket> socket = LineSocket::connect(path);
  if (!socket.ok()) {
    return std::move(socket).error();
  }
  TRY(socket.value().send("store " + name));
  return std::unique_ptr<ControlStore>(new ControlStore(std::move(socket).value()));
}

Result<void> ControlStore::set(const std::string& key, ByteSpan value) {
  const std::lock_guard lock(mutex_);
  return socket_.send("set " + key + " " + to_hex(value));
}

Result<Bytes> ControlStore::get(const std::string& key, Instant deadline) {
  const std::lock_guard lock(mutex_);
  if (asked_ != key) {
    TRY(socket_.send("get " + key));
    asked_ = key;
  }
  while (true) {
    Result<std::string> answer = socket_.receive(deadline);
    if (!answer.ok()) {
      return std::move(answer).error();
    }
    // Answers to keys that nobody waits for any more are passed over.
    const std::vector<std::string> words = words_of(answer.value());
    if (words.size() >= 2 && words[0] == "value" && words[1] == key) {
      asked_.clear();
      return bytes_of_hex(words.size() > 2 ? words[2] : "");
    }
  }
}

}  // namespace mayfly::bench
