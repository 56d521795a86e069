#include "cloud_hooks/bundle/bundle_server.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mayfly::cloud_hooks {
namespace {

const std::string kAccess(64, 'a');
constexpr BundleSizes kSizes{10, 1000};

BundleReply reply(const std::string& target, const std::string& range = {},
                  const std::string& method = "GET") {
  return reply_to({method, target, "Bearer " + kAccess, range}, kAccess, kSizes);
}

TEST(BundleReplies, WhoDoesNotShowTheAccessLearnsNothing) {
  std::string wrong = kAccess;
  wrong.back() = 'b';
  const std::vector<std::string> all = {"",
                                        kAccess,
                                        "Bearer",
                                        "Bearer ",
                                        "Bearer " + wrong,
                                        "Bearer " + kAccess + "a",
                                        "bearer " + kAccess,
                                        "Basic " + kAccess};
  for (const std::string& shown : all) {
    for (const char* target : {"/start", "/bundle", "/nothing"}) {
      const BundleReply refused = reply_to({"GET", target, shown, ""}, kAccess, kSizes);
      EXPECT_EQ(refused.status, 403) << shown;
      EXPECT_EQ(refused.body, BundleReply::Body::kNone);
      EXPECT_NE(refused.head.find("Content-Length: 0\r\n"), std::string::npos);
    }
  }
}

TEST(BundleReplies, AServerWhoseWorkerFailedSaysWhichItIs) {
  EXPECT_EQ(reply("/failed?zone-a/m-1", "", "POST").failed_server, "zone-a/m-1");
  EXPECT_EQ(reply("/failed?zone-a/m-1", "", "POST").status, 200);
  EXPECT_EQ(reply("/failed?zone-a/m-1").status, 405);
  EXPECT_EQ(reply("/failed?zone-a/m-1").failed_server, "");
  EXPECT_EQ(reply_to({"POST", "/failed?m", "", ""}, kAccess, kSizes).status, 403);
  EXPECT_EQ(reply_to({"POST", "/failed?m", "", ""}, kAccess, kSizes).failed_server, "");
}

TEST(BundleReplies, TwoThingsAreServedWholeOrInPart) {
  EXPECT_EQ(reply("/start").body, BundleReply::Body::kStart);
  EXPECT_EQ(reply("/start").bytes, 10u);
  const BundleReply whole = reply("/bundle");
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.bytes, 1000u);
  EXPECT_NE(whole.head.find("Content-Length: 1000\r\n"), std::string::npos);
  EXPECT_TRUE(whole.head.ends_with("\r\n\r\n"));
  EXPECT_EQ(reply("/").status, 404);
  EXPECT_EQ(reply("/bundle/../start").status, 404);
  EXPECT_EQ(reply("/start", "", "POST").status, 405);
}

TEST(BundleReplies, HeadSaysHowMuchThereIs) {
  const BundleReply head = reply("/bundle", "", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.bytes, 0u);
  EXPECT_NE(head.head.find("Content-Length: 1000\r\n"), std::string::npos);
}

TEST(BundleReplies, ARangeIsCutToWhatThereIs) {
  struct Case {
    const char* range;
    std::uint64_t first;
    std::uint64_t bytes;
    const char* place;
  };
  for (const Case& c :
       {Case{"bytes=0-0", 0, 1, "bytes 0-0/1000"}, Case{"bytes=5-", 5, 995, "bytes 5-999/1000"},
        Case{"bytes=990-5000", 990, 10, "bytes 990-999/1000"},
        Case{"bytes=-7", 993, 7, "bytes 993-999/1000"},
        Case{"bytes=-5000", 0, 1000, "bytes 0-999/1000"}}) {
    const BundleReply part = reply("/bundle", c.range);
    EXPECT_EQ(part.status, 206) << c.range;
    EXPECT_EQ(part.first, c.first) << c.range;
    EXPECT_EQ(part.bytes, c.bytes) << c.range;
    EXPECT_NE(part.head.find(std::string("Content-Range: ") + c.place), std::string::npos)
        << part.head;
  }
}

TEST(BundleReplies, ARangeBeyondTheEndIsRefusedAndOneThatIsNoneIgnored) {
  for (const char* beyond : {"bytes=1000-", "bytes=5000-6000", "bytes=-0"}) {
    EXPECT_EQ(reply("/bundle", beyond).status, 416) << beyond;
    EXPECT_NE(reply("/bundle", beyond).head.find("bytes */1000"), std::string::npos);
  }
  for (const char* none :
       {"bytes=", "bytes=-", "bytes=5-4", "bytes=a-b", "bytes=0-1,5-6", "lines=0-1", "0-1",
        "bytes=99999999999999999999-", "bytes=0-99999999999999999999", "bytes=--5"}) {
    EXPECT_EQ(reply("/bundle", none).status, 200) << none;
    EXPECT_EQ(reply("/bundle", none).bytes, 1000u) << none;
  }
}

TEST(BundleReplies, TheAccessIsNotTheToken) {
  EXPECT_EQ(bundle_access("t").size(), 64u);
  EXPECT_NE(bundle_access("t"), bundle_access("u"));
}

}  // namespace
}  // namespace mayfly::cloud_hooks
