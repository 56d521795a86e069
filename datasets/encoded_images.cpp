#include "datasets/encoded_images.hpp"

#include <strings.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "base/check.hpp"
#include "datasets/image_file.hpp"

namespace mayfly::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLabelsMax = 65'536;  // labels have 16 bits
constexpr const char* kForm = "expected train/CLASS/*.jpg and test/CLASS/*.jpg";

bool is_jpeg_name(const std::string& file) {
  const std::string extension = fs::path(file).extension().string();
  return file.front() != '.' && (::strcasecmp(extension.c_str(), ".jpg") == 0 ||
                                 ::strcasecmp(extension.c_str(), ".jpeg") == 0);
}

std::vector<std::string> components_of(const std::string& name) {
  std::vector<std::string> components;
  for (const fs::path& part : fs::path(name)) {
    if (!part.empty() && part != "." && part != "/") {
      components.push_back(part.string());
    }
  }
  return components;
}

// The sort key, which also identifies an image: two images with equal keys are duplicates.
auto sort_key(const EncodedImage& image) {
  return std::tie(image.test, image.class_name, image.file);
}

Result<void> list_class(const fs::path& folder, EncodedImage image, EncodedImages& images) {
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure)) {
    const std::string file = entry.path().filename().string();
    std::error_code unreadable;
    if (is_jpeg_name(file) && entry.is_regular_file(unreadable)) {
      image.file = file;
      image.path = entry.path().string();
      image.size = entry.file_size(unreadable);
      if (unreadable) {
        return Error{Errc::kIo, "cannot stat " + image.path + ": " + unreadable.message()};
      }
      images.push_back(image);
    }
  }
  if (failure) {
    return Error{Errc::kIo, "cannot list " + folder.string() + ": " + failure.message()};
  }
  return {};
}

Result<void> list_part(const fs::path& folder, bool test, EncodedImages& images) {
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure)) {
    if (!entry.is_directory()) {
      continue;
    }
    EncodedImage image;
    image.test = test;
    image.class_name = entry.path().filename().string();
    TRY(list_class(entry.path(), image, images));
  }
  if (failure) {
    return Error{Errc::kIo, "cannot list " + folder.string() + ": " + failure.message()};
  }
  return {};
}

Result<void> add_file_facts(const std::string& path, Digester& digester) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return Error{errno == ENOENT ? Errc::kNotFound : Errc::kIo,
                 "cannot stat " + path + ": " + std::strerror(errno)};
  }
  digester.add(std::as_bytes(std::span(path)));
  digester.add_value(static_cast<std::int64_t>(info.st_size));
  digester.add_value(static_cast<std::int64_t>(info.st_mtim.tv_sec));
  digester.add_value(static_cast<std::int64_t>(info.st_mtim.tv_nsec));
  return {};
}

}  // namespace

bool parse_image_name(const std::string& name, EncodedImage& image) {
  std::vector<std::string> components = components_of(name);
  if (components.size() == 4) {
    components.erase(components.begin());  // the one folder that archives often have on top
  }
  if (components.size() != 3 || (components[0] != "train" && components[0] != "test") ||
      !is_jpeg_name(components[2])) {
    return false;
  }
  image.test = components[0] == "test";
  image.class_name = components[1];
  image.file = components[2];
  image.path = name;
  return true;
}

Result<void> arrange_images(const std::string& source, EncodedImages& images) {
  std::sort(images.begin(), images.end(),
            [](const EncodedImage& a, const EncodedImage& b) { return sort_key(a) < sort_key(b); });
  if (images.empty() || images.front().test || !images.back().test) {
    return Error{Errc::kInvalidInput,
                 source + " has no " +
                     (images.empty() || images.front().test ? "training" : "test") +
                     " images: " + kForm};
  }
  std::vector<std::string> classes;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const EncodedImage& image = images[i];
    if (i > 0 && sort_key(images[i - 1]) == sort_key(image)) {
      return Error{Errc::kInvalidInput, source + ": " + image.path + " appears twice"};
    }
    if (!image.test && (classes.empty() || classes.back() != image.class_name)) {
      classes.push_back(image.class_name);
    }
    if (image.test && !std::binary_search(classes.begin(), classes.end(), image.class_name)) {
      return Error{Errc::kInvalidInput, source + ": class " + image.class_name +
                                            " has test images but no training images"};
    }
  }
  if (classes.size() > kLabelsMax) {
    return Error{Errc::kInvalidInput, source + " has " + std::to_string(classes.size()) +
                                          " classes, at most " + std::to_string(kLabelsMax) +
                                          " are possible"};
  }
  return {};
}

Result<EncodedImages> list_image_folder(const std::string& folder) {
  EncodedImages images;
  for (const bool test : {false, true}) {
    const fs::path part = fs::path(folder) / (test ? "test" : "train");
    if (Result<void> listed = list_part(part, test, images); !listed.ok()) {
      return Error{listed.error().code, listed.error().detail + "; " + kForm};
    }
  }
  TRY(arrange_images(folder, images));
  return images;
}

std::string name_in_set(const EncodedImage& image) {
  return (image.test ? "test/" : "train/") + image.class_name + '/' + image.file;
}

std::string name_of(const std::string& source, const EncodedImage& image) {
  return image.place == ImagePlace::kFile ? image.path : source + ": " + image.path;
}

Result<ByteSpan> bytes_of(const EncodedImage& image, Bytes& buffer) {
  if (image.place == ImagePlace::kFile) {
    return read_image_file(image.path, image.size, buffer);
  }
  return image.content;
}

std::vector<std::string> class_names_of(const EncodedImages& images) {
  std::vector<std::string> classes;
  for (const EncodedImage& image : images) {
    if (!image.test && (classes.empty() || classes.back() != image.class_name)) {
      classes.push_back(image.class_name);
    }
  }
  return classes;
}

Result<Digest> folder_key(const EncodedImages& images) {
  Digester digester;
  for (const EncodedImage& image : images) {
    TRY(add_file_facts(image.path, digester));
  }
  return digester.finish();
}

Result<Digest> tar_key(const std::string& path) {
  Digester digester;
  std::error_code failure;
  const std::string absolute = fs::absolute(path, failure).string();
  TRY(add_file_facts(failure ? path : absolute, digester));
  return digester.finish();
}

}  // namespace mayfly::datasets
