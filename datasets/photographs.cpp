#include "datasets/photographs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/lock_file.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"
#include "datasets/jpeg.hpp"

namespace mayfly::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTrainingPerTest = 25;
static_assert(std::int64_t{9} * kPhotographSideMax * kPhotographSideMax <= kJpegPixelsMax,
              "each image that is made can be in a data set");

/// Not durable by itself: the whole set is flushed once at the end.
Result<void> write_new_file(const std::string& path, ByteSpan content) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return file_error("cannot create", path);
  }
  return write_all(fd.get(), content) == content.size() ? Result<void>()
                                                        : file_error("cannot write", path);
}

/// Writes the images of a set, several threads beside each other.
class SetWriter {
 public:
  SetWriter(std::string folder, const PhotographSet& set)
      : folder_(std::move(folder)), set_(set), all_(set.images + test_photographs(set.images)) {}

  Result<MadePhotographs> write() {
    for (const char* part : {"train", "test"}) {
      for (const char* name : kShapeNames) {
        TRY(make_directories(fmt::format("{}/{}/{}", folder_, part, name)));
      }
    }
    std::vector<std::optional<Error>> failures(set_.threads);
    std::vector<std::thread> threads;
    for (std::optional<Error>& failure : failures) {
      threads.emplace_back([this, &failure] { failure = write_some(); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (std::optional<Error>& failure : failures) {
      if (failure) {
        return *std::move(failure);
      }
    }
    return MadePhotographs{all_, bytes_};
  }

 private:
  std::optional<Error> write_some() {
    Bytes jpeg;
    for (std::uint64_t number = next_++; number < all_ && !has_failed_; number = next_++) {
      const Result<void> written = write_one(number, jpeg);
      if (!written.ok()) {
        has_failed_ = true;
        return written.error();
      }
      bytes_ += jpeg.size();
    }
    return std::nullopt;
  }

  Result<void> write_one(std::uint64_t number, Bytes& jpeg) {
    const bool is_test = number >= set_.images;
    const std::uint64_t index = is_test ? number - set_.images : number;
    const Photograph photograph = render_photograph(
        set_.seed, is_test ? ShapePart::kTest : ShapePart::kTrain, index, set_.side);
    encode_jpeg({photograph.width, photograph.height, photograph.pixels}, photograph.quality, jpeg);
    return write_new_file(fmt::format("{}/{}/{}/{:08}.jpg", folder_, is_test ? "test" : "train",
                                      kShapeNames[photograph.label], index),
                          jpeg);
  }

  std::string folder_;
  const PhotographSet& set_;
  std::uint64_t all_ = 0;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> has_failed_{false};
};

/// FOLDER without links and without a slash at its end.
std::string resolved(const std::string& folder) {
  std::error_code failure;
  const fs::path absolute = fs::absolute(folder).lexically_normal();
  fs::path path = fs::weakly_canonical(absolute, failure);
  path = failure ? absolute : path;
  return path.has_filename() ? path.string() : path.parent_path().string();
}

/// Rejects a `folder` that could not be replaced after the set is made.
Result<void> refuse_what_cannot_be_replaced(const std::string& folder) {
  std::error_code failure;
  if (fs::is_symlink(folder, failure)) {
    return Error{Errc::kInvalidInput, folder + " is a link without a target; remove it"};
  }
  struct statx info {};
  if (::statx(AT_FDCWD, folder.c_str(), 0, 0, &info) == 0 &&
      (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
    return Error{Errc::kInvalidInput,
                 fmt::format("{0} is a mount point, which the finished images cannot replace; name "
                             "a folder in it, such as {0}/photographs",
                             folder)};
  }
  return {};
}

Result<void> refuse_content(const std::string& folder) {
  std::error_code failure;
  if (!fs::exists(folder, failure)) {
    return {};
  }
  if (!fs::is_directory(folder, failure) || !fs::is_empty(folder, failure) || failure) {
    return Error{Errc::kInvalidInput,
                 folder + " is not an empty folder; name another, or remove it"};
  }
  return {};
}

/// After a power failure the set exists completely or not at all.
Result<void> put_in_place(const std::string& made, const std::string& folder) {
  const UniqueFd fd(::open(made.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::syncfs(fd.get()) != 0) {
    return file_error("cannot flush", made);
  }
  if (std::rename(made.c_str(), folder.c_str()) != 0) {
    return file_error("cannot put the finished images in place as", folder);
  }
  return {};
}

}  // namespace

std::uint64_t test_photographs(std::uint64_t training) {
  return std::max<std::uint64_t>(kShapeClasses, training / kTrainingPerTest);
}

Result<MadePhotographs> make_photographs(const std::string& folder, const PhotographSet& set) {
  ENSURE(set.images > 0 && set.threads > 0, "a set has images and a thread that makes them");
  const std::string path = resolved(folder);
  TRY(refuse_what_cannot_be_replaced(path));
  TRY(refuse_content(path));
  const std::string making = path + ".making";
  const std::string lock_path = making + ".lock";
  Result<LockFile> lock = LockFile::take(lock_path);
  if (!lock.ok()) {
    return std::move(lock).error();
  }
  std::error_code ignored;
  fs::remove_all(making, ignored);  // left by a process that was killed
  Result<MadePhotographs> made = refuse_content(path).ok()
                                     ? SetWriter(making, set).write()
                                     : Error{Errc::kRefused, path + " was created meanwhile"};
  if (made.ok()) {
    if (Result<void> placed = put_in_place(making, path); !placed.ok()) {
      made = std::move(placed).error();
    }
  }
  if (!made.ok()) {
    fs::remove_all(making, ignored);
  }
  (void)::unlink(lock_path.c_str());  // a process that waits for the lock makes it again
  std::move(lock).value().discard();
  return made;
}

}  // namespace mayfly::datasets
