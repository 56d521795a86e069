#include "tests/fuzz/driver.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/digest.hpp"
#include "tests/fuzz/mutator.hpp"

// The sanitizers call the callback when they end the process; null without a sanitizer.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace mayfly::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKeptBytesMax = 4096;

ByteSpan present;          // the input that is being read
std::string present_file;  // the file to which it is written if reading it ends the process

void leave_input() {
  if (std::FILE* file = std::fopen(present_file.c_str(), "wb")) {
    std::fwrite(present.data(), 1, present.size(), file);
    std::fclose(file);
    std::fprintf(stderr, "the input is in %s\n", present_file.c_str());
  }
}

void leave_input_of_signal(int number) {
  leave_input();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void leave_input_at_the_end(const std::string& name) {
  present_file = fs::absolute("fuzz-" + name + ".bin");
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(leave_input);
    return;
  }
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    ::signal(number, leave_input_of_signal);
  }
}

std::vector<Bytes> kept_corpus(const std::string& name) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(MAYFLY_FUZZ_CORPUS) / name)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    corpus.push_back(bytes_of(text));
  }
  return corpus;
}

/// The outcome without its numbers and without parts of the input that it quotes.
std::string kind_of(const std::string& outcome) {
  std::string kind;
  bool is_quoted = false;
  for (const char c : outcome) {
    is_quoted = c == '\'' || c == '"' ? !is_quoted : is_quoted;
    if (!is_quoted && std::isdigit(static_cast<unsigned char>(c)) == 0) {
      kind += c;
    }
  }
  return kind;
}

class Keeper {
 public:
  explicit Keeper(const std::string& name) {
    if (const char* folder = std::getenv("MAYFLY_TEST_FUZZ_KEEP")) {
      folder_ = fs::path(folder) / name;
      fs::create_directories(folder_);
    }
  }
  void look_at(const Bytes& input, const std::string& outcome) {
    if (folder_.empty() || input.size() > kKeptBytesMax || !seen_.insert(kind_of(outcome)).second) {
      return;
    }
    std::ofstream file(folder_ / to_string(digest_of(ByteSpan(input))).substr(0, 16),
                       std::ios::binary);
    file << text_of(input);
  }

 private:
  fs::path folder_;
  std::set<std::string> seen_;
};

std::uint64_t rounds_of(const Target& target) {
  const char* text = std::getenv("MAYFLY_TEST_FUZZ_ROUNDS");
  return text == nullptr ? target.rounds : std::strtoull(text, nullptr, 10);
}

}  // namespace

void run(const Target& target) {
  leave_input_at_the_end(target.name);
  Keeper keeper(target.name);
  const auto try_input = [&](const Bytes& input, const std::string& name) {
    present = input;
    const std::string outcome = target.read(input);
    keeper.look_at(input, outcome);
    if (testing::Test::HasFailure()) {
      leave_input();
      ADD_FAILURE() << target.name << ": " << name;
    }
    return !testing::Test::HasFailure();
  };
  std::vector<Bytes> corpus = kept_corpus(target.name);
  corpus.insert(corpus.end(), target.seeds.begin(), target.seeds.end());
  ASSERT_FALSE(corpus.empty());
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    if (!try_input(corpus[i], "input " + std::to_string(i) + " of the corpus")) {
      return;
    }
  }
  for (std::uint64_t round = 0; round < rounds_of(target); ++round) {
    RandomStream random{CounterRandom(round).split(target.name)};
    Mutator mutator(random);
    const Bytes& base = corpus[random.below(corpus.size())];
    const Bytes& other = corpus[random.below(corpus.size())];
    if (!try_input(mutator.mutate(base, other), "round " + std::to_string(round))) {
      return;
    }
  }
}

Bytes bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

std::string text_of(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace mayfly::fuzz
