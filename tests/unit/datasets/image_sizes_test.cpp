#include "datasets/encoded_images.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/datasets/image_files.hpp"

namespace mayfly::datasets {
namespace {

Files sized_files() {
  return {{"train/cat/1.jpg", photo(50, 40, 1)},
          {"train/cat/2.jpg", photo(41, 62, 2)},
          {"train/dog/1.jpg", photo(33, 35, 3)},
          {"test/dog/1.jpg", photo(20, 21, 4)}};
}

Result<MeasuredImages> measured(const std::string& folder, bool skip_corrupt,
                                const std::string& cache_file = "") {
  return measure_images(folder, list_image_folder(folder).value(), skip_corrupt, cache_file);
}

std::string error_of(const Files& files) {
  const TemporaryFolder folder;
  write_folder(files, folder.path());
  const Result<MeasuredImages> result = measured(folder.path(), false);
  EXPECT_FALSE(result.ok());
  return result.ok() ? std::string() : result.error().detail;
}

TEST(ImageSizes, AreThoseOfTheImages) {
  const TemporaryFolder folder;
  write_folder(sized_files(), folder.path());
  const MeasuredImages found = measured(folder.path(), false).value();
  std::vector<std::pair<int, int>> sizes;
  for (const EncodedImage& image : found.images) {
    sizes.emplace_back(image.width, image.height);
  }
  EXPECT_EQ(sizes, (std::vector<std::pair<int, int>>{{50, 40}, {41, 62}, {33, 35}, {20, 21}}));
  EXPECT_EQ(found.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(found.left_out.count, 0U);
}

TEST(ImageSizes, TheFirstUnusableImageIsNamed) {
  Files files = sized_files();
  for (int i = 0; i < 300; ++i) {  // enough images for several threads
    files["train/eel/" + std::to_string(1000 + i) + ".jpg"] = files["train/dog/1.jpg"];
  }
  files["train/eel/1250.jpg"] = {'x'};
  files["train/eel/1100.jpg"] = {};
  files["train/eel/1299.jpg"] = {'y'};
  EXPECT_NE(error_of(files).find("train/eel/1100.jpg"), std::string::npos);
}

TEST(ImageSizes, FourChannelsAreRefusedInOneLine) {
  Files files = sized_files();
  files["train/cat/2.jpg"] = photo(41, 62, 2, TJSAMP_444, TJPF_CMYK);
  const std::string detail = error_of(files);
  EXPECT_NE(detail.find("train/cat/2.jpg has 4 channels"), std::string::npos) << detail;
  EXPECT_EQ(detail.find('\n'), std::string::npos);
}

TEST(ImageSizes, AFileThatIsTooLargeIsRefused) {
  const TemporaryFolder folder;
  write_folder(sized_files(), folder.path());
  std::filesystem::resize_file(folder / "train/cat/2.jpg", (std::uintmax_t{64} << 20) + 1);
  const Result<MeasuredImages> result = measured(folder.path(), false);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().detail.find("train/cat/2.jpg has 67108865 bytes"), std::string::npos)
      << result.error().detail;
}

TEST(ImageSizes, UnusableImagesAreLeftOutWhenAsked) {
  Files files = sized_files();
  files["train/cat/1.jpg"] = {'x'};
  files["train/cat/2.jpg"] = photo(41, 62, 2, TJSAMP_444, TJPF_CMYK);
  const TemporaryFolder folder;
  write_folder(files, folder / "set");
  for (int round = 0; round < 2; ++round) {  // measured, then from the cache
    const MeasuredImages found = measured(folder / "set", true, folder / "cache.sizes").value();
    EXPECT_EQ(found.left_out.count, 2U);
    EXPECT_EQ(found.left_out.names,
              (std::vector<std::string>{"train/cat/1.jpg", "train/cat/2.jpg"}));
    ASSERT_EQ(found.images.size(), 2U);
    EXPECT_EQ(found.images[0].class_name, "dog");
    EXPECT_EQ(found.class_names, (std::vector<std::string>{"cat", "dog"}));
  }
}

TEST(ImageSizes, SomethingMustBeLeft) {
  Files files = sized_files();
  files["test/dog/1.jpg"] = {'x'};
  const TemporaryFolder folder;
  write_folder(files, folder.path());
  EXPECT_NE(measured(folder.path(), true).error().detail.find("every training or every test"),
            std::string::npos);
}

TEST(ImageSizes, AFileThatCannotBeReadIsNeverLeftOut) {
  const TemporaryFolder folder;
  write_folder(sized_files(), folder.path());
  EncodedImages images = list_image_folder(folder.path()).value();
  std::filesystem::remove(folder / "train/cat/2.jpg");
  const Result<MeasuredImages> result = measure_images("set", images, true, "");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kNotFound);
  EXPECT_NE(result.error().detail.find("train/cat/2.jpg"), std::string::npos);
}

TEST(ImageSizes, AHeaderBehindALongCommentIsFound) {
  Files files = sized_files();
  File& photo_file = files["train/cat/1.jpg"];
  File padded(photo_file.begin(), photo_file.begin() + 2);
  for (int i = 0; i < 3; ++i) {  // comments of 50,000 bytes each
    padded.insert(padded.end(), {0xff, 0xfe, 50'000 >> 8, 50'000 & 0xff});
    padded.insert(padded.end(), 50'000 - 2, 'c');
  }
  padded.insert(padded.end(), photo_file.begin() + 2, photo_file.end());
  photo_file = padded;
  const TemporaryFolder folder;
  write_folder(files, folder.path());
  EXPECT_EQ(measured(folder.path(), false).value().images[0].width, 50);
}

TEST(ImageSizes, ADamagedCacheIsMeasuredAgain) {
  const TemporaryFolder folder;
  write_folder(sized_files(), folder / "set");
  const std::string cache = folder / "cache.sizes";
  ASSERT_TRUE(measured(folder / "set", false, cache).ok());
  const auto size = std::filesystem::file_size(cache);
  for (const std::uintmax_t place :
       {std::uintmax_t{0}, std::uintmax_t{8}, std::uintmax_t{13}, size - 1}) {
    std::fstream file(cache, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(place));
    file.put('\x5a');
    file.close();
    EXPECT_EQ(measured(folder / "set", false, cache).value().images[1].height, 62);
  }
  std::filesystem::resize_file(cache, size / 2);
  EXPECT_EQ(measured(folder / "set", false, cache).value().images[1].height, 62);
  EXPECT_EQ(std::filesystem::file_size(cache), size);
}

TEST(ImageSizes, SmallImagesAreRefusedOrLeftOut) {
  Files files = sized_files();
  files["train/cat/2.jpg"] = photo(300, 7, 2);
  const TemporaryFolder folder;
  write_folder(files, folder.path());
  MeasuredImages found = measured(folder.path(), false).value();
  const Result<void> refused = refuse_small_images(folder.path(), 8, false, found);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().detail.find("train/cat/2.jpg has 300x7 pixels"), std::string::npos)
      << refused.error().detail;
  EXPECT_TRUE(refuse_small_images(folder.path(), 8, true, found).ok());
  EXPECT_EQ(found.left_out.sentence(), "1 unusable image is left out: train/cat/2.jpg");
  EXPECT_EQ(found.images.size(), 3U);
}

}  // namespace
}  // namespace mayfly::datasets
