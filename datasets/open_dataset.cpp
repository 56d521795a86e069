#include <filesystem>

#include "datasets/cifar.hpp"
#include "datasets/dataset.hpp"
#include "datasets/image_set.hpp"
#include "datasets/procedural.hpp"

namespace mayfly::datasets {
namespace {

namespace fs = std::filesystem;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool is_tar_name(const std::string& path) {
  for (const char* end : {".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz"}) {
    if (ends_with(path, end)) {
      return true;
    }
  }
  return false;
}

// Images that lie ready in memory have the size that they have.
Result<DatasetPair> with_size(Result<DatasetPair> opened, int wanted) {
  if (!opened.ok() || wanted == 0 || opened.value().train->image_size() == wanted) {
    return opened;
  }
  const std::string side = std::to_string(opened.value().train->image_size());
  return Error{Errc::kInvalidInput, opened.value().name + " has " + side + 'x' + side +
                                        " images; --image-size " + std::to_string(wanted) +
                                        " is possible for image folders and tars only"};
}

Result<DatasetPair> open_folder(const std::string& folder, const OpenOptions& options) {
  for (const CifarFormat* format : {&cifar10_format(), &cifar100_format()}) {
    if (const std::optional<std::string> place = find_cifar(*format, folder)) {
      return with_size(open_cifar(*format, *place), options.image_size);
    }
  }
  std::error_code ignored;
  if (fs::is_directory(fs::path(folder) / "train", ignored)) {
    return open_image_folder(folder, options);
  }
  return Error{Errc::kNotFound,
               folder +
                   " holds no data set: expected CIFAR binaries (data_batch_1.bin ... or "
                   "train.bin) or an image folder (train/CLASS/*.jpg, test/CLASS/*.jpg)"};
}

}  // namespace

Result<DatasetPair> open_dataset(const std::string& spec, const OpenOptions& options) {
  if (spec == "procedural" || spec.rfind("procedural:", 0) == 0) {
    return with_size(open_procedural(spec, options.seed), options.image_size);
  }
  std::error_code ignored;
  if (fs::is_directory(spec, ignored)) {
    return open_folder(spec, options);
  }
  if (!fs::exists(spec, ignored)) {
    return Error{
        Errc::kNotFound,
        "no data set '" + spec + "': no such folder or file (procedural[:SAMPLES] needs none)"};
  }
  if (is_tar_name(spec)) {
    return open_image_tar(spec, options);
  }
  return Error{Errc::kInvalidInput,
               spec +
                   " is no data set: expected a folder, a .tar, .tar.gz or .tar.xz of an image "
                   "folder, or procedural[:SAMPLES]"};
}

}  // namespace mayfly::datasets
