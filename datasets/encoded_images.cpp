#include "datasets/encoded_images.hpp"

#include <strings.h>
#include <sys/stat.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <thread>
#include <tuple>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/system_error.hpp"
#include "base/usable_cores.hpp"
#include "datasets/jpeg.hpp"

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

bool is_part_name(const std::string& folder) {
  return folder == "train" || folder == "test";
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

// A link without a target is a missing image, or a missing class, without which all labels would
// change.
Result<void> refuse_lost(const fs::directory_entry& entry) {
  std::error_code why;
  const fs::file_type type = entry.status(why).type();
  const std::string path = entry.path().string();
  if (type == fs::file_type::not_found) {
    return lost_link(path);
  }
  return type == fs::file_type::none
             ? Result<void>(Error{Errc::kIo, "cannot stat " + path + ": " + why.message()})
             : Result<void>();
}

Result<void> list_class(const fs::path& folder, EncodedImage image, EncodedImages& images) {
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const fs::directory_entry& entry = *it;
    const std::string file = entry.path().filename().string();
    if (!is_jpeg_name(file)) {
      continue;
    }
    std::error_code unreadable;
    if (!entry.is_regular_file(unreadable)) {
      TRY(refuse_lost(entry));
      continue;
    }
    image.file = file;
    image.path = entry.path().string();
    image.size = entry.file_size(unreadable);
    if (unreadable) {
      return Error{Errc::kIo, "cannot stat " + image.path + ": " + unreadable.message()};
    }
    images.push_back(image);
  }
  if (failure) {
    return Error{Errc::kIo, "cannot list " + folder.string() + ": " + failure.message()};
  }
  return {};
}

Result<void> list_part(const fs::path& folder, bool test, EncodedImages& images) {
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const fs::directory_entry& entry = *it;
    std::error_code unreadable;
    if (!entry.is_directory(unreadable)) {
      TRY(refuse_lost(entry));
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

// One file has one path here, however the data set was named.
Result<void> add_file_facts(const std::string& path, Digester& digester) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return system_error("cannot stat " + path, errno,
                        errno == ENOENT ? Errc::kNotFound : Errc::kIo);
  }
  std::error_code failure;
  const fs::path absolute = fs::absolute(path, failure);
  const std::string one_path = (failure ? fs::path(path) : absolute).lexically_normal().string();
  digester.add(std::as_bytes(std::span(one_path)));
  digester.add_value(static_cast<std::int64_t>(info.st_size));
  digester.add_value(static_cast<std::int64_t>(info.st_mtim.tv_sec));
  digester.add_value(static_cast<std::int64_t>(info.st_mtim.tv_nsec));
  return {};
}

constexpr std::uint64_t kSizesMagic = 0x3253455a49534d46;  // "FMSIZES2"
constexpr std::uint64_t kHeaderBytes = std::uint64_t{1} << 14;
constexpr std::size_t kChunk = 64;  // images that a thread claims at a time
constexpr std::size_t kImagesMax = UINT32_MAX;

using Problem = std::optional<Error>;

Problem header_problem(const std::string& name, const Result<JpegHeader>& header) {
  if (!header.ok()) {
    return Error{header.error().code, name + ": " + header.error().detail};
  }
  if (header.value().channels == 4) {
    return Error{Errc::kInvalidInput, name +
                                          " has 4 channels (CMYK), expected 1 or 3: convert it to "
                                          "RGB, or leave it out with --skip-corrupt"};
  }
  return {};
}

// The header is nearly always within the first bytes; thumbnails and colour profiles can push it
// behind them.
Problem measure(const std::string& source, EncodedImage& image, Bytes& buffer) {
  if (image.size > kJpegBytesMax) {
    return Error{Errc::kInvalidInput, name_of(source, image) + " has " +
                                          std::to_string(image.size) + " bytes, at most " +
                                          std::to_string(kJpegBytesMax) + " expected"};
  }
  const bool is_file = image.place == ImagePlace::kFile;
  Result<ByteSpan> bytes =
      is_file ? read_image_start(image.path, kHeaderBytes, buffer) : bytes_of(image, buffer);
  if (!bytes.ok()) {
    return bytes.error();
  }
  Result<JpegHeader> header = read_jpeg_header(bytes.value());
  if (!header.ok() && is_file && image.size > kHeaderBytes) {
    bytes = bytes_of(image, buffer);
    if (!bytes.ok()) {
      return bytes.error();
    }
    header = read_jpeg_header(bytes.value());
  }
  if (Problem problem = header_problem(name_of(source, image), header)) {
    return problem;
  }
  image.width = header.value().width;
  image.height = header.value().height;
  return {};
}

// A file that cannot be read is an error of the file system, not a damaged image to be skipped.
bool can_skip(const Error& problem) {
  return problem.code == Errc::kCorrupt || problem.code == Errc::kInvalidInput;
}

// Measures all images; unusable ones have no size afterwards. Returns the first problem, in the
// order of the images, that skip_corrupt does not cover.
Problem measure_all(const std::string& source, bool skip_corrupt,
                    const std::function<bool()>& is_called_off, EncodedImages& images) {
  std::atomic<std::size_t> next{0};
  std::vector<std::pair<std::size_t, Problem>> found;
  const std::size_t count =
      std::min<std::size_t>(std::max(1U, usable_cores()), images.size() / kChunk + 1);
  found.resize(count, {images.size(), Problem()});
  const auto work = [&](std::pair<std::size_t, Problem>& first) {
    Bytes buffer;
    for (std::size_t begin; (begin = next.fetch_add(kChunk)) < images.size();) {
      if (is_called_off && is_called_off()) {
        first = {0, called_off()};
        return;
      }
      for (std::size_t i = begin; i < std::min(begin + kChunk, images.size()); ++i) {
        Problem problem = measure(source, images[i], buffer);
        if (problem && i < first.first && !(skip_corrupt && can_skip(*problem))) {
          first = {i, std::move(problem)};
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < count; ++i) {
    threads.emplace_back(work, std::ref(found[i]));
  }
  work(found[0]);
  for (std::thread& thread : threads) {
    thread.join();
  }
  return std::min_element(found.begin(), found.end(),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

Bytes encode_sizes(const EncodedImages& images) {
  WireWriter writer;
  writer.put(kSizesMagic);
  writer.put(static_cast<std::uint32_t>(images.size()));
  for (const EncodedImage& image : images) {
    writer.put(static_cast<std::uint16_t>(image.width));
    writer.put(static_cast<std::uint16_t>(image.height));
  }
  Bytes bytes = writer.take();
  const Digest digest = digest_of(bytes);
  WireWriter end;
  end.put(digest.high);
  end.put(digest.low);
  const Bytes hash = end.take();
  bytes.insert(bytes.end(), hash.begin(), hash.end());
  return bytes;
}

// Reads sizes from the cache file. True if it has the sizes of exactly these images.
bool load_sizes(const std::string& path, EncodedImages& images) {
  const std::size_t size = 12 + 4 * images.size() + sizeof(Digest);
  const Result<Bytes> file = read_file(path, size);
  if (!file.ok() || file.value().size() != size) {
    return false;
  }
  const ByteSpan content = ByteSpan(file.value()).first(size - sizeof(Digest));
  WireReader reader(file.value());
  if (reader.get<std::uint64_t>() != kSizesMagic || reader.get<std::uint32_t>() != images.size()) {
    return false;
  }
  WireReader end(ByteSpan(file.value()).subspan(content.size()));
  Digest expected;
  expected.high = end.get<std::uint64_t>();
  expected.low = end.get<std::uint64_t>();
  if (expected != digest_of(content)) {
    return false;
  }
  for (EncodedImage& image : images) {
    image.width = reader.get<std::uint16_t>();
    image.height = reader.get<std::uint16_t>();
  }
  return true;
}

bool has_both_parts(const EncodedImages& images) {
  return !images.empty() && !images.front().test && images.back().test;
}

// Removes the images for which `unusable` is true, and notes their names.
template <typename Predicate>
Result<void> leave_out(const std::string& source, MeasuredImages& measured, Predicate unusable) {
  std::erase_if(measured.images, [&](const EncodedImage& image) {
    const bool leave = unusable(image);
    if (leave) {
      measured.left_out.add(name_in_set(image));
    }
    return leave;
  });
  if (!has_both_parts(measured.images)) {
    return Error{Errc::kCorrupt, source + ": every training or every test image is unusable"};
  }
  return {};
}

}  // namespace

bool parse_image_name(const std::string& name, EncodedImage& image) {
  std::vector<std::string> components = components_of(name);
  if (components.size() == 4) {
    components.erase(components.begin());  // the one folder that archives often have on top
  }
  if (components.size() != 3 || !is_part_name(components[0]) || !is_jpeg_name(components[2])) {
    return false;
  }
  image.test = components[0] == "test";
  image.class_name = components[1];
  image.file = components[2];
  image.path = name;
  return true;
}

bool may_stand_for_images(const std::string& name) {
  EncodedImage image;
  std::vector<std::string> components = components_of(name);
  if (components.size() > 1 && !is_part_name(components[0])) {
    components.erase(components.begin());
  }
  const bool is_folder =
      !components.empty() && components.size() <= 2 && is_part_name(components[0]);
  return is_folder || parse_image_name(name, image);
}

Error lost_link(const std::string& path) {
  return {Errc::kNotFound, path + " is a link without a target: restore its target, or remove it"};
}

Error called_off() {
  return {Errc::kAborted, "the worker was asked to leave while it opened its data set"};
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
  TRY(add_file_facts(path, digester));
  return digester.finish();
}

Result<MeasuredImages> measure_images(const std::string& source, EncodedImages images,
                                      bool skip_corrupt, const std::string& cache_file,
                                      const std::function<bool()>& is_called_off) {
  if (images.size() > kImagesMax) {
    return Error{Errc::kInvalidInput, source + " has more than 2^32 images"};
  }
  MeasuredImages measured;
  measured.class_names = class_names_of(images);
  measured.images = std::move(images);
  if (cache_file.empty() || !load_sizes(cache_file, measured.images)) {
    if (Problem problem = measure_all(source, skip_corrupt, is_called_off, measured.images)) {
      return *std::move(problem);
    }
    if (!cache_file.empty()) {
      const Result<void> kept = write_file_atomic(cache_file, encode_sizes(measured.images));
      if (!kept.ok()) {
        log::warning("the images' sizes are not kept: " + kept.error().detail);
      }
    }
  }
  if (Result<void> left =
          leave_out(source, measured, [](const EncodedImage& image) { return image.width == 0; });
      !left.ok()) {
    return std::move(left).error();
  }
  return measured;
}

Result<void> refuse_small_images(const std::string& source, int side_min, bool skip_corrupt,
                                 MeasuredImages& measured) {
  const auto is_small = [side_min](const EncodedImage& image) {
    return std::min(image.width, image.height) < side_min;
  };
  const auto found = std::find_if(measured.images.begin(), measured.images.end(), is_small);
  if (found == measured.images.end()) {
    return {};
  }
  if (!skip_corrupt) {
    return Error{Errc::kInvalidInput,
                 name_of(source, *found) + " has " + std::to_string(found->width) + 'x' +
                     std::to_string(found->height) + " pixels; expected at least " +
                     std::to_string(side_min) + " a side (--skip-corrupt leaves such images out)"};
  }
  return leave_out(source, measured, is_small);
}

}  // namespace mayfly::datasets
