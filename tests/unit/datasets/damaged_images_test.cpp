// Damaged JPEGs among healthy ones: with skip_corrupt, a data set is bit for bit the set without
// the damaged images, for every kind of damage, of storage and of reader.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "datasets/encoded_images.hpp"
#include "datasets/jpeg.hpp"
#include "datasets/readers.hpp"
#include "tests/unit/datasets/image_files.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint8_t kFrame = 0xc0;         // SOF0: after length and precision, height and width
constexpr std::uint8_t kHuffmanTable = 0xc4;  // DHT
constexpr std::uint8_t kQuantTable = 0xdb;    // DQT
constexpr std::uint8_t kApplication = 0xe5;   // APP5, which decoders skip

// Index of the first marker's second byte.
std::size_t find_marker(const File& file, std::uint8_t marker) {
  for (std::size_t i = 2; i + 1 < file.size(); ++i) {
    if (file[i] == 0xff && file[i + 1] == marker) {
      return i + 1;
    }
  }
  ADD_FAILURE() << "no marker " << int{marker};
  return 0;
}

File with_height(File file, std::uint16_t height) {
  const std::size_t at = find_marker(file, kFrame);
  file[at + 4] = static_cast<std::uint8_t>(height >> 8);
  file[at + 5] = static_cast<std::uint8_t>(height & 0xff);
  return file;
}

File without_tables(File file, std::uint8_t marker) {
  for (std::size_t i = 2; i + 1 < file.size(); ++i) {
    if (file[i] == 0xff && file[i + 1] == marker) {
      file[i + 1] = kApplication;
    }
  }
  return file;
}

File cut(const File& file, std::size_t size) {
  return {file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)};
}

struct Damage {
  const char* what;
  std::function<File(File)> apply;
};

// Damages that are found when the header is read.
const std::vector<Damage>& header_damages() {
  static const std::vector<Damage> kAll = {
      {"bad Huffman table",
       [](File file) {
         file[find_marker(file, kHuffmanTable) + 4] = 200;  // codes of one bit
         return file;
       }},
      {"0 pixels high", [](File file) { return with_height(std::move(file), 0); }},
      {"65,535 pixels high", [](File file) { return with_height(std::move(file), 0xffff); }},
      {"cut in a Huffman table",
       [](const File& file) { return cut(file, find_marker(file, kHuffmanTable) + 9); }},
      {"cut in a quantisation table",
       [](const File& file) { return cut(file, find_marker(file, kQuantTable) + 30); }},
      {"cut in the frame's header",
       [](const File& file) { return cut(file, find_marker(file, kFrame) + 4); }},
      {"empty", [](const File&) { return File(); }},
      {"no JPEG",
       [](const File&) { return File{'n', 'o', 't', ' ', 'a', ' ', 'J', 'P', 'E', 'G'}; }}};
  return kAll;
}

// Damages that only decoding finds.
const std::vector<Damage>& body_damages() {
  static const std::vector<Damage> kAll = {
      {"cut in the body", [](const File& file) { return cut(file, file.size() - 10); }},
      {"no quantisation tables",
       [](File file) { return without_tables(std::move(file), kQuantTable); }}};
  return kAll;
}

std::vector<std::uint8_t> pixels_of(JpegDecoder& decoder, const File& file) {
  const Result<RgbImage> image = decoder.decode(std::as_bytes(std::span(file)));
  EXPECT_TRUE(image.ok()) << image.error().detail;
  return image.ok()
             ? std::vector<std::uint8_t>(image.value().pixels.begin(), image.value().pixels.end())
             : std::vector<std::uint8_t>();
}

// Goal: the decoded image depends only on the bytes of the image.
TEST(DamagedImages, LeaveNoTraceInTheDecoder) {
  const File good = photo(40, 30, 1);
  JpegDecoder untouched;
  const std::vector<std::uint8_t> expected = pixels_of(untouched, good);
  JpegDecoder decoder;
  for (const auto* damages : {&header_damages(), &body_damages()}) {
    for (const Damage& damage : *damages) {
      const File bad = damage.apply(good);
      for (int round = 0; round < 2; ++round) {
        EXPECT_FALSE(decoder.decode(std::as_bytes(std::span(bad))).ok()) << damage.what;
        EXPECT_EQ(pixels_of(decoder, good), expected) << damage.what;
      }
    }
  }
}

// A grey JPEG of several scans.
File progressive_jpeg(int width, int height) {
  const tjhandle encoder = tjInitCompress();
  const std::vector<std::uint8_t> rgb(3UL * static_cast<std::size_t>(width * height), 77);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  tjCompress2(encoder, rgb.data(), width, 0, height, TJPF_RGB, &bytes, &size, TJSAMP_420, 50,
              TJFLAG_PROGRESSIVE);
  File file(bytes, bytes + size);
  tjFree(bytes);
  tjDestroy(encoder);
  return file;
}

// Each scan has some fifty bytes and takes milliseconds, so a file of a megabyte takes a minute.
TEST(DamagedImages, OneWithEndlessScansIsFoundAtOnce) {
  constexpr int kScans = 20'000;
  constexpr double kSecondsMost = 15;
  File file = progressive_jpeg(4096, 2048);
  const std::array<std::uint8_t, 2> start = {0xff, 0xda};
  const auto scan = std::find_end(file.begin(), file.end(), start.begin(), start.end());
  const File last(scan, file.end() - 2);
  const File end(file.end() - 2, file.end());
  file.resize(file.size() - end.size());
  for (int i = 0; i < kScans; ++i) {
    file.insert(file.end(), last.begin(), last.end());
  }
  file.insert(file.end(), end.begin(), end.end());
  const Instant begun = monotonic_now();
  const Result<RgbImage> image = JpegDecoder().decode(std::as_bytes(std::span(file)));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, Errc::kCorrupt);
  EXPECT_LT(to_seconds(monotonic_now() - begun), kSecondsMost);
}

// A JPEG without Huffman tables is decoded with the tables of the standard, never with those of the
// image that was decoded before it.
TEST(DamagedImages, TablesOfTheImageBeforeAreNotUsed) {
  const File bare = without_tables(photo(40, 30, 1), kHuffmanTable);
  const File progressive = progressive_jpeg(40, 30);  // it has its own tables
  JpegDecoder untouched;
  const std::vector<std::uint8_t> expected = pixels_of(untouched, bare);
  JpegDecoder decoder;
  pixels_of(decoder, progressive);
  EXPECT_EQ(pixels_of(decoder, bare), expected);
}

// More images than one thread takes at a time, so that several threads measure them. `side` 8:
// squares, which are decoded when the set is opened; 0: images of several sizes, which are decoded
// when they are read.
Files many_images(int side) {
  Files files;
  for (int i = 0; i < 400; ++i) {
    const std::string name =
        (i % 2 == 0 ? "train/cat/" : "train/dog/") + std::to_string(1000 + i) + ".jpg";
    const auto value = static_cast<std::uint8_t>(i % 250);
    files[name] = side > 0 ? jpeg(side, side, {value, 100, 200})
                           : jpeg(16 + i % 5, 16 + i % 7, {value, 100, 200});
  }
  files["test/cat/1.jpg"] = files["train/cat/1000.jpg"];
  files["test/dog/1.jpg"] = files["train/dog/1001.jpg"];
  return files;
}

const std::vector<std::string>& some_names() {
  static const std::vector<std::string> kNames = {"train/cat/1000.jpg", "train/cat/1130.jpg",
                                                  "train/dog/1131.jpg", "train/dog/1399.jpg"};
  return kNames;
}

struct Found {
  std::vector<std::string> left_out;
  Digest digest;
  std::size_t train = 0;
  std::size_t test = 0;
  friend bool operator==(const Found&, const Found&) = default;
};

Found found(const Result<DatasetPair>& opened) {
  EXPECT_TRUE(opened.ok()) << opened.error().detail;
  if (!opened.ok()) {
    return {};
  }
  const DatasetPair& pair = opened.value();
  EXPECT_EQ(pair.left_out.count, pair.left_out.names.size());
  return {pair.left_out.names, pair.digest, pair.train->size(), pair.test->size()};
}

class DamagedSet : public ::testing::TestWithParam<int> {
 protected:
  // Checks that `files`, stored and opened in every way, are the set without `left_out`.
  static void expect_set_without(const std::vector<std::string>& left_out, const Files& files,
                                 const char* what) {
    const TemporaryFolder folder;
    Files rest = files;
    std::erase_if(rest, [&](const auto& file) {
      return std::count(left_out.begin(), left_out.end(), file.first) > 0;
    });
    write_folder(rest, folder / "rest");
    Found expected = found(open_image_folder(folder / "rest", {}));
    expected.left_out = left_out;

    OpenOptions options;
    options.skip_corrupt = true;
    write_folder(files, folder / "set");
    write_tar(files, folder / "set.tar");
    EXPECT_EQ(found(open_image_folder(folder / "set", options)), expected) << what;
    EXPECT_EQ(found(open_image_tar(folder / "set.tar", options)), expected) << what;
    if (GetParam() > 0) {
      write_tar(files, folder / "set.tar.gz");
      EXPECT_EQ(found(open_image_tar(folder / "set.tar.gz", options)), expected) << what;
    }
    options.cache_dir = folder / "cache";
    for (int round = 0; round < 2; ++round) {  // first from the files, then from the cache
      EXPECT_EQ(found(open_image_folder(folder / "set", options)), expected) << what;
      EXPECT_EQ(found(open_image_tar(folder / "set.tar", options)), expected) << what;
    }
  }
};

TEST_P(DamagedSet, IsThatOfTheImagesWithAUsableHeader) {
  const Files healthy = many_images(GetParam());
  for (const Damage& damage : header_damages()) {
    Files files = healthy;
    for (const std::string& name : some_names()) {
      files[name] = damage.apply(files[name]);
    }
    expect_set_without(some_names(), files, damage.what);
  }
}

TEST_P(DamagedSet, IsWithoutCorruptBodiesIfItIsDecodedAtOnce) {
  const Files healthy = many_images(GetParam());
  const bool at_once = GetParam() > 0;
  for (const Damage& damage : body_damages()) {
    Files files = healthy;
    for (const std::string& name : some_names()) {
      files[name] = damage.apply(files[name]);
    }
    expect_set_without(at_once ? some_names() : std::vector<std::string>(), files, damage.what);
  }
}

INSTANTIATE_TEST_SUITE_P(SmallAndOfAnySize, DamagedSet, ::testing::Values(8, 0));

TEST(DamagedImages, AreCountedAllAndTheFirstAreNamed) {
  Files files = many_images(8);
  for (int i = 0; i < 100; i += 2) {
    files["train/cat/" + std::to_string(1000 + i) + ".jpg"] = {};
  }
  const TemporaryFolder folder;
  write_folder(files, folder / "set");
  OpenOptions options;
  options.skip_corrupt = true;
  options.cache_dir = folder / "cache";
  for (int round = 0; round < 2; ++round) {
    const LeftOut left_out = open_image_folder(folder / "set", options).value().left_out;
    EXPECT_EQ(left_out.count, 50U);
    ASSERT_EQ(left_out.names.size(), LeftOut::kNamesMax);
    EXPECT_EQ(left_out.names.back(), "train/cat/1038.jpg");
    EXPECT_TRUE(left_out.sentence().ends_with("train/cat/1038.jpg and 30 more"))
        << left_out.sentence();
  }
}

TEST(DamagedImages, TooLargeOnesAreToldWhatIsPossible) {
  const File tall = with_height(photo(40, 30, 1), 20'000);
  const Result<JpegHeader> header = read_jpeg_header(std::as_bytes(std::span(tall)));
  ASSERT_FALSE(header.ok());
  EXPECT_TRUE(header.error().detail.starts_with(
      "claims to be 40x20000 pixels, at most 16384 a side and 67108864 in all expected"))
      << header.error().detail;
}

// In a folder and in a tar. An earlier version could not open a tar with such an image.
TEST(DamagedImages, OneWithTooManyBytesIsLeftOut) {
  Files files = many_images(8);
  files["train/cat/1000.jpg"].resize(kJpegBytesMax + 1);
  const TemporaryFolder folder;
  write_folder(files, folder / "set");
  write_tar(files, folder / "set.tar");
  OpenOptions options;
  for (const auto& open : {open_image_folder, open_image_tar}) {
    options.skip_corrupt = true;
    const std::string source = folder / (open == open_image_tar ? "set.tar" : "set");
    EXPECT_EQ(found(open(source, options)).left_out,
              std::vector<std::string>{"train/cat/1000.jpg"});
    options.skip_corrupt = false;
    const Result<DatasetPair> refused = open(source, options);
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(
        refused.error().detail.ends_with("1000.jpg has 67108865 bytes, at most 67108864 expected"))
        << refused.error().detail;
  }
}

// The version before also left out healthy images after a damaged one, and its file of sizes in the
// cache lacks them.
TEST(DamagedImages, SizesKeptByTheVersionBeforeAreNotUsed) {
  const Files files = many_images(0);
  const TemporaryFolder folder;
  write_folder(files, folder / "set");
  const std::string cache = folder / "kept.sizes";
  const auto usable = [&] {
    return measure_images("set", list_image_folder(folder / "set").value(), true, cache)
        .value()
        .images.size();
  };
  ASSERT_EQ(usable(), files.size());
  Bytes content(std::filesystem::file_size(cache) - sizeof(Digest));
  std::ifstream(cache, std::ios::binary)
      .read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
  content[7] = std::byte{'1'};                                           // FMSIZES1
  std::fill_n(content.begin() + 12, std::size_t{4} * 64, std::byte{0});  // no sizes
  const Digest digest = digest_of(content);
  WireWriter end;
  end.put(digest.high);
  end.put(digest.low);
  const Bytes hash = end.take();
  content.insert(content.end(), hash.begin(), hash.end());
  std::ofstream(cache, std::ios::binary)
      .write(reinterpret_cast<const char*>(content.data()),
             static_cast<std::streamsize>(content.size()));
  EXPECT_EQ(usable(), files.size());
}

}  // namespace
}  // namespace mayfly::datasets
