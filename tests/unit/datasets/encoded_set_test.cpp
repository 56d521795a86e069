#include "datasets/encoded_set.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>

#include "datasets/image_store.hpp"
#include "datasets/jpeg.hpp"
#include "datasets/loader.hpp"
#include "datasets/readers.hpp"
#include "tests/unit/datasets/image_files.hpp"

namespace mayfly::datasets {
namespace {

constexpr int kImageSide = 32;
constexpr std::size_t kBytes = 3UL * kImageSide * kImageSide;

Files some_files() {
  Files files;
  for (int i = 0; i < 6; ++i) {
    const std::string name = i % 2 == 0 ? "train/cat/" : "train/dog/";
    files[name + std::to_string(i) + ".jpg"] = photo(90 + 61 * i, 200 - 23 * i, i);
  }
  files["test/cat/1.jpg"] = photo(120, 100, 7);
  files["test/dog/1.jpg"] = photo(400, 300, 8);
  return files;
}

OpenOptions encoded_options(bool skip_corrupt = false) {
  OpenOptions options;
  options.image_size = kImageSide;
  options.skip_corrupt = skip_corrupt;
  return options;
}

using Pixels = std::vector<std::uint8_t>;

Pixels read(const Dataset& set, std::size_t index) {
  Pixels pixels(kBytes);
  const Result<void> done = set.read(index, pixels);
  EXPECT_TRUE(done.ok()) << done.error().detail;
  return pixels;
}

Pixels read_for_training(const Dataset& set, std::size_t index, const EpochKey& key) {
  Pixels pixels(kBytes);
  EXPECT_TRUE(set.read_for_training(index, key, pixels).ok());
  return pixels;
}

double difference(const Pixels& a, const Pixels& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::abs(int{a[i]} - int{b[i]});
  }
  return sum / static_cast<double>(a.size());
}

TEST(EncodedSet, ASecondCopyThatIsGivenUpBeforeItsUseIsUsedAllTheSame) {
  constexpr std::uint64_t kRoom = std::uint64_t{1} << 20;
  const TemporaryFolder folder;
  write_folder(some_files(), folder / "set");
  const std::string name = "train/dog/1.jpg";  // the first of the second class
  const Pixels wanted =
      read(*open_image_folder(folder / "set", encoded_options()).value().train, 3);
  OpenOptions options = encoded_options();
  options.store_bytes = kRoom;
  options.store_host = "127.0.0.1";
  const DatasetPair pair = open_image_folder(folder / "set", options).value();
  const auto store =
      ImageStore::join({.key = pair.files, .images = 6, .bytes_max = kRoom, .folder = {}}).value();
  const auto file = some_files().at(name);
  ASSERT_TRUE(store->keep_second(3, std::as_bytes(std::span(file))));
  const SampleStream stream(1, 6);
  pair.train->fetch_ahead(stream, stream.position_of(0, 3), 1);
  store->allow_giving_up(true);
  ASSERT_TRUE(store->keep(0, Bytes(kRoom - 64)));
  ASSERT_FALSE(store->keeps(3));
  std::filesystem::remove(folder / "set/" + name);
  EXPECT_EQ(read(*pair.train, 3), wanted);
}

// Goal: images that a thread has fetched ahead are not taken for those of a later set. Method: both
// sets are in the same variable, so they have the same address.
TEST(EncodedSet, WhatAThreadHasFetchedAheadIsNotTakenForALaterSet) {
  constexpr std::size_t kTrained = 6;
  const TemporaryFolder folder;
  const std::string name = "train/dog/1.jpg";  // the first of the second class
  const auto file_of_first = some_files().at(name);
  Files files_of_second = some_files();
  files_of_second[name] = photo(260, 250, 11);
  std::optional<EncodedSet> set;
  const auto make_set = [&](const Files& files, const std::string& path) {
    write_folder(files, path);
    const MeasuredImages measured =
        measure_images(path, list_image_folder(path).value(), false, "").value();
    EncodedSet::Options options;
    options.source = path;
    options.image_size = kImageSide;
    options.store = ImageStore::join({.key = unshared_key(),
                                      .images = kTrained,
                                      .bytes_max = std::uint64_t{1} << 20,
                                      .folder = {}})
                        .value();
    options.peers =
        PeerStores::start(options.store, std::vector<std::uint32_t>(kTrained, 1), "127.0.0.1")
            .value();
    set.emplace(options, measured.class_names, std::span(measured.images).first(kTrained));
    return options.store;
  };
  const auto store = make_set(some_files(), folder / "first");
  ASSERT_TRUE(store->keep_second(3, std::as_bytes(std::span(file_of_first))));
  const SampleStream stream(1, kTrained);
  set->fetch_ahead(stream, stream.position_of(0, 3), 1);
  (void)make_set(files_of_second, folder / "second");
  EXPECT_EQ(read(*set, 3),
            read(*open_image_folder(folder / "second", encoded_options()).value().train, 3));
}

TEST(EncodedSet, FolderAndPlainTarAreTheSame) {
  const TemporaryFolder folder;
  write_folder(some_files(), folder / "set");
  write_tar(some_files(), folder / "set.tar", "top/");
  const DatasetPair a = open_image_folder(folder / "set", encoded_options()).value();
  const DatasetPair b = open_image_tar(folder / "set.tar", encoded_options()).value();
  EXPECT_TRUE(a.encoded);
  EXPECT_EQ(a.name, "images");
  EXPECT_EQ(a.mean, kImagenetMean);
  EXPECT_EQ(a.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(a.digest, b.digest);
  ASSERT_EQ(a.train->size(), 6U);
  ASSERT_EQ(a.test->size(), 2U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(a.train->label(i), i / 3);
    EXPECT_EQ(read(*a.train, i), read(*b.train, i));
    EXPECT_EQ(read_for_training(*a.train, i, {1, 2}), read_for_training(*b.train, i, {1, 2}));
  }
  EXPECT_EQ(a.test->label(1), 1);
  EXPECT_EQ(read(*a.test, 1), read(*b.test, 1));
  EXPECT_EQ(a.test_digest, b.test_digest);
  Files other = some_files();
  other["test/dog/2.jpg"] = photo(100, 120, 9);
  write_tar(other, folder / "other.tar");
  const DatasetPair c = open_image_tar(folder / "other.tar", encoded_options()).value();
  EXPECT_EQ(c.digest, a.digest);
  EXPECT_NE(c.test_digest, a.test_digest);
}

// Goal: decoding at a fraction of the size hardly changes the pixels. Method: compare them with
// those of the image that is decoded at its full size and then scaled.
TEST(EncodedSet, PartsLookLikeTheWholeImageScaled) {
  const TemporaryFolder folder;
  Files files = some_files();
  files["test/dog/1.jpg"] = photo(1200, 900, 8);  // decoded at 2/8
  write_folder(files, folder.path());
  const DatasetPair pair = open_image_folder(folder.path(), encoded_options()).value();
  const auto whole = [](const File& file, const ImagePart& part) {
    JpegDecoder decoder;
    const RgbImage image = decoder.decode(std::as_bytes(std::span(file))).value();
    Pixels pixels(kBytes);
    Resampler().scale(image, part, kImageSide, pixels);
    return pixels;
  };
  EXPECT_LT(difference(read(*pair.test, 1), whole(files["test/dog/1.jpg"], centre_part(1200, 900))),
            2.0);
  const File& cat = files["train/cat/0.jpg"];
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    const ResizedCrop draw = draw_resized_crop(5, epoch, 0, 90, 200);
    EXPECT_LT(difference(read_for_training(*pair.train, 0, {5, epoch}), whole(cat, draw.part)),
              2.0);
  }
}

TEST(EncodedSet, TrainingSeesAnotherPartInEveryEpoch) {
  const TemporaryFolder folder;
  write_folder(some_files(), folder.path());
  const DatasetPair pair = open_image_folder(folder.path(), encoded_options()).value();
  const Pixels first = read_for_training(*pair.train, 3, {1, 0});
  EXPECT_EQ(first, read_for_training(*pair.train, 3, {1, 0}));
  EXPECT_NE(first, read_for_training(*pair.train, 3, {1, 1}));
  EXPECT_NE(first, read_for_training(*pair.train, 3, {2, 0}));
}

// Goal: the content of a microbatch does not depend on the thread that prepares it.
TEST(EncodedSet, LoadersWithAnyNumberOfThreadsAgree) {
  const TemporaryFolder folder;
  write_folder(some_files(), folder.path());
  const DatasetPair pair = open_image_folder(folder.path(), encoded_options()).value();
  LoaderOptions options;
  options.seed = 3;
  options.global_batch = 12;
  options.microbatch = 3;
  const std::vector<std::uint32_t> all = {0, 1, 2, 3};
  std::vector<std::vector<float>> expected;
  for (const std::uint32_t threads : {0U, 1U, 3U}) {
    options.threads = threads;
    options.yield_cores = threads > 1;
    const auto loader = make_loader(pair, options);
    std::vector<std::vector<float>> images;
    for (std::uint64_t step = 1; step <= 4; ++step) {
      loader->request(step, all);
      for (const std::uint32_t microbatch : all) {
        images.push_back(loader->take(step, microbatch)->images);
      }
    }
    if (expected.empty()) {
      expected = images;
    }
    EXPECT_EQ(images, expected) << threads;
  }
}

TEST(EncodedSet, GreyImagesHaveThreeEqualChannels) {
  Files files = some_files();
  files["train/cat/2.jpg"] = photo(100, 80, 3, TJSAMP_GRAY);
  const TemporaryFolder folder;
  write_folder(files, folder.path());
  const DatasetPair pair = open_image_folder(folder.path(), encoded_options()).value();
  const Pixels pixels = read(*pair.train, 1);
  const auto plane = static_cast<std::ptrdiff_t>(kBytes / 3);
  EXPECT_TRUE(std::equal(pixels.begin(), pixels.begin() + plane, pixels.begin() + plane));
  EXPECT_TRUE(std::equal(pixels.begin(), pixels.begin() + plane, pixels.begin() + 2 * plane));
  EXPECT_NE(pixels.front(), pixels[static_cast<std::size_t>(plane) - 1]);
}

TEST(EncodedSet, SmallImagesAreNamedOrLeftOut) {
  Files files = some_files();
  files["train/cat/2.jpg"] = photo(100, 7, 3);
  const TemporaryFolder folder;
  write_folder(files, folder.path());
  const Result<DatasetPair> refused = open_image_folder(folder.path(), encoded_options());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().detail.find("train/cat/2.jpg has 100x7 pixels"), std::string::npos);
  const DatasetPair rest = open_image_folder(folder.path(), encoded_options(true)).value();
  EXPECT_EQ(rest.left_out.count, 1U);
  EXPECT_EQ(rest.train->size(), 5U);
}

// The header is intact, so opening the set does not find the damage.
Files with_torn_body(const std::string& name) {
  Files files = some_files();
  files[name].resize(files[name].size() - 200);
  return files;
}

TEST(EncodedSet, ABodyThatIsCorruptIsNamedWhenItIsRead) {
  const Files files = with_torn_body("train/cat/2.jpg");
  const TemporaryFolder folder;
  write_folder(files, folder / "set");
  write_tar(files, folder / "set.tar");
  for (const auto& opened : {open_image_folder(folder / "set", encoded_options()),
                             open_image_tar(folder / "set.tar", encoded_options())}) {
    const DatasetPair& pair = opened.value();
    Pixels pixels(kBytes);
    const Result<void> done = pair.train->read(1, pixels);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, Errc::kCorrupt);
    EXPECT_NE(done.error().detail.find("train/cat/2.jpg"), std::string::npos)
        << done.error().detail;
  }
}

TEST(EncodedSet, ALoaderHandsTheErrorOn) {
  const TemporaryFolder folder;
  write_folder(with_torn_body("train/cat/2.jpg"), folder.path());
  const DatasetPair pair = open_image_folder(folder.path(), encoded_options()).value();
  LoaderOptions options;
  options.global_batch = 6;
  options.microbatch = 6;
  const auto loader = make_loader(pair, options);
  const auto batch = loader->take(1, 0);
  ASSERT_TRUE(batch->failure.has_value());
  EXPECT_NE(batch->failure->detail.find("train/cat/2.jpg"), std::string::npos);
}

TEST(EncodedSet, ACorruptBodyBecomesTheMeanColourWhenAsked) {
  const TemporaryFolder folder;
  write_folder(with_torn_body("train/cat/2.jpg"), folder.path());
  const DatasetPair pair = open_image_folder(folder.path(), encoded_options(true)).value();
  ASSERT_EQ(pair.train->size(), 6U);
  for (int round = 0; round < 2; ++round) {
    const Pixels pixels = read(*pair.train, 1);
    EXPECT_EQ(pixels.front(), 124);
    EXPECT_EQ(pixels[kBytes / 2], 116);
    EXPECT_EQ(pixels.back(), 104);
  }
}

TEST(EncodedSet, AFileThatIsGoneIsAnErrorInAnyCase) {
  const TemporaryFolder folder;
  write_folder(some_files(), folder.path());
  const DatasetPair pair = open_image_folder(folder.path(), encoded_options(true)).value();
  std::filesystem::remove(folder / "train/cat/2.jpg");
  Pixels pixels(kBytes);
  const Result<void> done = pair.train->read(1, pixels);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().detail.find("train/cat/2.jpg"), std::string::npos);
}

TEST(EncodedSet, AFileThatChangedItsSizeIsAnError) {
  const TemporaryFolder folder;
  write_folder(some_files(), folder.path());
  const DatasetPair pair = open_image_folder(folder.path(), encoded_options()).value();
  write_file(folder / "train/cat/2.jpg", photo(10, 10, 1));
  Pixels pixels(kBytes);
  EXPECT_NE(pair.train->read(1, pixels).error().detail.find("has changed"), std::string::npos);
}

TEST(EncodedSet, AnUnsharedStoreIsNotThatOfTheOthers) {
  constexpr std::uint64_t kRoom = std::uint64_t{1} << 20;
  const TemporaryFolder folder;
  write_folder(some_files(), folder / "set");
  for (const bool is_unshared : {true, false}) {
    OpenOptions options = encoded_options();
    options.store_bytes = kRoom;
    options.store_is_unshared = is_unshared;
    const DatasetPair pair = open_image_folder(folder / "set", options).value();
    read(*pair.train, 3);
    const auto shared =
        ImageStore::join({.key = pair.files, .images = 6, .bytes_max = kRoom, .folder = {}});
    EXPECT_EQ(shared.value()->keeps(3), !is_unshared);
  }
}

// Goal: results do not depend on when a file changed: to read a changed file is an error, even with
// skip_corrupt. Method: a file becomes shorter, longer, or gets other pixels in as many bytes; a
// tar is cut. With a store the tar is read and not mapped.
TEST(EncodedSet, WhatHasChangedIsNotTakenForACorruptImage) {
  const std::string name = "train/cat/2.jpg";
  const File file = some_files().at(name);
  File shorter(file.begin(), file.end() - 200);
  File longer = file;
  longer.push_back(0);
  File other_pixels = photo(60, 40, 2);
  ASSERT_LT(other_pixels.size(), file.size());
  other_pixels.resize(file.size());
  for (const File& changed : {shorter, longer, other_pixels}) {
    const TemporaryFolder folder;
    write_folder(some_files(), folder.path());
    const DatasetPair pair = open_image_folder(folder.path(), encoded_options(true)).value();
    write_file(folder / name, changed);
    Pixels pixels(kBytes);
    const Result<void> done = pair.train->read(1, pixels);
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, Errc::kIo);
    EXPECT_NE(done.error().detail.find(name + " has changed"), std::string::npos);
  }
  const TemporaryFolder folder;
  write_tar(some_files(), folder / "set.tar");
  OpenOptions options = encoded_options(true);
  options.store_bytes = std::uint64_t{1} << 20;
  const DatasetPair pair = open_image_tar(folder / "set.tar", options).value();
  std::filesystem::resize_file(folder / "set.tar", 600);
  Pixels pixels(kBytes);
  const Result<void> done = pair.train->read(1, pixels);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().detail.find("it ends early"), std::string::npos) << done.error().detail;
}

// Goal: an open set does not change if its tar is replaced by another file of the same name, for
// example by a new version.
TEST(EncodedSet, WithAStoreATarIsReadThatWasMapped) {
  const TemporaryFolder folder;
  const std::string path = folder / "set.tar";
  write_tar(some_files(), path);
  const Pixels wanted = read(*open_image_tar(path, encoded_options()).value().train, 1);
  MeasuredImages measured = measure_images(path, read_image_tar(path).value(), false, "").value();
  Files others = some_files();
  others["train/zebra/1.jpg"] = photo(310, 170, 9);  // is packed first
  write_tar(others, folder / "new.tar");
  std::filesystem::rename(folder / "new.tar", path);
  EncodedSet::Options options;
  options.source = path;
  options.image_size = kImageSide;
  options.store =
      ImageStore::join(
          {.key = unshared_key(), .images = 6, .bytes_max = std::uint64_t{1} << 20, .folder = {}})
          .value();
  const DatasetPair pair = make_encoded_pair(options, std::move(measured));
  EXPECT_EQ(read(*pair.train, 1), wanted);
}

TEST(EncodedSet, ACompressedTarIsRefusedWithAdvice) {
  const TemporaryFolder folder;
  write_tar(some_files(), folder / "set.tar.gz");
  const Result<DatasetPair> opened = open_image_tar(folder / "set.tar.gz", encoded_options());
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().detail.find("unpack it"), std::string::npos) << opened.error().detail;
}

/// A file in a tar as GNU tar stores one with holes: in two pieces, here without a hole.
std::string entry_in_two_pieces(const std::string& name, const File& content) {
  constexpr std::size_t kBlock = 512;
  std::string header(kBlock, '\0');
  const auto put = [&header](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, "0000644");
  put(124, fmt::format("{:011o}", content.size()));
  put(156, "S");
  put(257, "ustar  ");
  put(386, fmt::format("{:011o}", 0));  // the pieces: their places and sizes
  put(398, fmt::format("{:011o}", kBlock));
  put(410, fmt::format("{:011o}", kBlock));
  put(422, fmt::format("{:011o}", content.size() - kBlock));
  put(483, fmt::format("{:011o}", content.size()));
  put(148, "        ");
  unsigned sum = 0;
  for (const char byte : header) {
    sum += static_cast<unsigned char>(byte);
  }
  put(148, fmt::format("{:06o}", sum) + '\0');
  std::string entry = header + std::string(content.begin(), content.end());
  entry.resize((entry.size() + kBlock - 1) / kBlock * kBlock);
  return entry;
}

TEST(EncodedSet, APlainTarWithAnImageInPiecesIsRefused) {
  const TemporaryFolder folder;
  write_tar(some_files(), folder / "set.tar");
  std::ifstream whole(folder / "set.tar", std::ios::binary);
  const std::string rest(std::istreambuf_iterator<char>(whole), {});
  std::ofstream(folder / "pieces.tar", std::ios::binary)
      << entry_in_two_pieces("train/cat/7.jpg", photo(90, 80, 7)) << rest;
  const Result<DatasetPair> opened = open_image_tar(folder / "pieces.tar", encoded_options());
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().detail.find("unpack it"), std::string::npos) << opened.error().detail;
}

TEST(EncodedSet, CopiesHaveTheSameDigestAndOthersDoNot) {
  const TemporaryFolder folder;
  const auto digest_of_set = [&](const Files& files, const std::string& name) {
    write_folder(files, folder / name);
    return open_image_folder(folder / name, encoded_options()).value().digest;
  };
  const Digest digest = digest_of_set(some_files(), "a");
  EXPECT_EQ(digest_of_set(some_files(), "b"), digest);
  Files renamed = some_files();
  renamed["train/cat/22.jpg"] = renamed["train/cat/2.jpg"];
  renamed.erase("train/cat/2.jpg");
  EXPECT_NE(digest_of_set(renamed, "c"), digest);
  Files resized = some_files();
  resized["train/cat/2.jpg"] = photo(212, 155, 2);
  EXPECT_NE(digest_of_set(resized, "d"), digest);
}

TEST(EncodedSet, OpensAgainFromTheCacheOfSizes) {
  const TemporaryFolder folder;
  write_folder(some_files(), folder / "set");
  OpenOptions options = encoded_options();
  options.cache_dir = folder / "cache";
  const DatasetPair first = open_image_folder(folder / "set", options).value();
  const DatasetPair second = open_image_folder(folder / "set", options).value();
  EXPECT_EQ(first.digest, second.digest);
  EXPECT_EQ(read(*first.train, 5), read(*second.train, 5));
  const auto files = std::filesystem::directory_iterator(options.cache_dir);
  EXPECT_EQ(std::count_if(begin(files), end(files),
                          [](const auto& file) { return file.path().extension() == ".sizes"; }),
            1);
}

}  // namespace
}  // namespace mayfly::datasets
