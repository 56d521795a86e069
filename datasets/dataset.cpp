#include "datasets/dataset.hpp"

#include <algorithm>
#include <filesystem>

#include "datasets/encoded_images.hpp"
#include "datasets/readers.hpp"

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

// Decoded images cannot be scaled, so another --image-size than theirs is refused.
Result<DatasetPair> with_size(Result<DatasetPair> opened, int wanted) {
  if (!opened.ok() || wanted == 0 || opened.value().train->image_size() == wanted) {
    return opened;
  }
  const std::string side = std::to_string(opened.value().train->image_size());
  return Error{Errc::kInvalidInput, opened.value().name + " has " + side + 'x' + side +
                                        " images; --image-size " + std::to_string(wanted) +
                                        " is possible for image folders and tars only"};
}

Error no_data_set_in(const std::string& folder) {
  return {Errc::kNotFound,
          folder +
              " holds no data set: expected CIFAR binaries (data_batch_1.bin ... or "
              "train.bin) or an image folder (train/CLASS/*.jpg, test/CLASS/*.jpg)"};
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
  return no_data_set_in(folder);
}

Error not_a_tar(const std::string& path) {
  return {Errc::kInvalidInput,
          path +
              " is not a data set: expected a folder, a .tar, .tar.gz or .tar.xz of an image "
              "folder, or procedural[:SAMPLES]"};
}

/// Adds the names of all files in a sub-folder of `root`, not only of images.
Result<void> add_files(const fs::path& root, const char* part, std::vector<std::string>& names) {
  std::error_code failure;
  const auto through_links = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator it(root / part, through_links, failure), end;
       !failure && it != end; it.increment(failure)) {
    std::string name = it->path().lexically_relative(root).generic_string();
    std::error_code why;
    const fs::file_type type = it->status(why).type();
    if (type == fs::file_type::none) {  // without it the list would look complete
      return Error{Errc::kIo, "cannot stat " + it->path().string() + ": " + why.message()};
    }
    if (type == fs::file_type::not_found && may_stand_for_images(name)) {  // likewise
      return lost_link(it->path().string());
    }
    if (type == fs::file_type::regular) {
      names.push_back(std::move(name));
    }
  }
  return failure ? Result<void>(Error{Errc::kIo, "cannot read " + (root / part).string() + ": " +
                                                     failure.message()})
                 : Result<void>();
}

Result<DatasetFiles> files_of_folder(const std::string& folder) {
  DatasetFiles files;
  std::error_code ignored;
  for (const CifarFormat* format : {&cifar10_format(), &cifar100_format()}) {
    if (const std::optional<std::string> place = find_cifar(*format, folder)) {
      files.root = *place;
      files.names = format->train_files;
      files.names.push_back(format->test_file);
      files.names.push_back(format->names_file);
      std::erase_if(files.names, [&](const std::string& name) {
        return name.empty() || !fs::exists(fs::path(*place) / name, ignored);
      });
      std::sort(files.names.begin(), files.names.end());
      return files;
    }
  }
  files.root = folder;
  for (const char* part : {"train", "test"}) {
    if (!fs::is_directory(fs::path(folder) / part, ignored)) {
      continue;
    }
    TRY(add_files(folder, part, files.names));
  }
  if (files.names.empty()) {
    return no_data_set_in(folder);
  }
  std::sort(files.names.begin(), files.names.end());
  return files;
}

}  // namespace

Result<Augmentation> Dataset::read_for_training(std::size_t index, const EpochKey& key,
                                                std::span<std::uint8_t> pixels) const {
  TRY(read(index, pixels));
  return draw_augmentation(key.seed, key.epoch, index);
}

void Dataset::fetch_ahead(const SampleStream&, std::uint64_t, std::size_t) const {}

std::uint64_t Dataset::stored_bytes(std::size_t /*index*/) const {
  const auto side = static_cast<std::uint64_t>(image_size());
  return 3 * side * side;
}

bool is_procedural(const std::string& spec) {
  return spec == "procedural" || spec.starts_with("procedural:");
}

Result<DatasetFiles> files_of_dataset(const std::string& spec) {
  std::error_code ignored;
  if (is_procedural(spec)) {
    return Error{Errc::kInvalidInput, "a procedural data set has no files"};
  }
  if (fs::is_directory(spec, ignored)) {
    return files_of_folder(spec);
  }
  if (!fs::exists(spec, ignored)) {
    return Error{Errc::kNotFound, "no data set '" + spec + "': no such folder or file"};
  }
  const fs::path path = fs::absolute(spec);
  return DatasetFiles{path.parent_path().string(), {path.filename().string()}, true};
}

Result<DatasetPair> open_dataset(const std::string& spec, const OpenOptions& options) {
  if (is_procedural(spec)) {
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
  return not_a_tar(spec);
}

Result<void> check_dataset(const std::string& spec) {
  std::error_code ignored;
  if (!fs::is_directory(spec, ignored)) {
    return is_tar_name(spec) ? Result<void>() : not_a_tar(spec);
  }
  for (const CifarFormat* format : {&cifar10_format(), &cifar100_format()}) {
    if (const std::optional<std::string> place = find_cifar(*format, spec)) {
      const Result<DatasetPair> opened = open_cifar(*format, *place);
      return opened.ok() ? Result<void>() : opened.error();
    }
  }
  if (!fs::is_directory(fs::path(spec) / "train", ignored)) {
    return no_data_set_in(spec);
  }
  const Result<EncodedImages> listed = list_image_folder(spec);
  return listed.ok() ? Result<void>() : listed.error();
}

}  // namespace mayfly::datasets
