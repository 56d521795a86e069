#include "cloud_hooks/bundle/bundle_file.hpp"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.hpp"
#include "cloud_hooks/sign/hashes.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { ::EVP_MD_CTX_free(context); }
};

Error failure(const std::string& path, int number) {
  return {number == ENOENT ? Errc::kNotFound : Errc::kIo, path + ": " + std::strerror(number)};
}

/// Of exactly so many bytes from the file's beginning.
Result<std::string> hash_of(int fd, std::uint64_t bytes, const std::string& path) {
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(::EVP_MD_CTX_new());
  ENSURE(context != nullptr && ::EVP_DigestInit_ex(context.get(), ::EVP_sha256(), nullptr) == 1,
         "OpenSSL has SHA-256");
  std::vector<char> block(kBlockBytes);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t count = ::pread(fd, block.data(), block.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return count < 0 ? failure(path, errno)
                       : Error{Errc::kIo, path + " became shorter while it was read"};
    }
    ::EVP_DigestUpdate(context.get(), block.data(), static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  ::EVP_DigestFinal_ex(context.get(), digest.data(), &size);
  return to_hex({reinterpret_cast<const char*>(digest.data()), size});
}

}  // namespace

Result<BundleFile> open_bundle(const std::string& path) {
  BundleFile bundle;
  // Non-blocking, because opening a named pipe would block before it is refused.
  bundle.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!bundle.fd.valid() || ::fstat(bundle.fd.get(), &about) != 0) {
    return failure(path, errno);
  }
  bundle.bytes = static_cast<std::uint64_t>(about.st_size);
  if (!S_ISREG(about.st_mode) || bundle.bytes == 0 || bundle.bytes > kBundleBytesMax) {
    return Error{Errc::kInvalidInput,
                 path + " is no bundle: it is not a file, empty, or over 4 GiB"};
  }
  Result<std::string> hash = hash_of(bundle.fd.get(), bundle.bytes, path);
  if (!hash.ok()) {
    return std::move(hash).error();
  }
  bundle.sha256 = std::move(hash).value();
  return bundle;
}

}  // namespace mayfly::cloud_hooks
