#include "observe/core/metrics_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/observe/run_text.hpp"

namespace mayfly::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const RunFold& fold, MetricsFormat format = MetricsFormat::kPrometheus) {
  return metrics_text({{"a \"run\"\n", &fold}},
                      {{"process_cpu_seconds", "Processor time.", true, 1.5}}, format);
}

TEST(MetricsText, HasWhatTheRecordsSay) {
  Feed feed;
  begin(feed);
  feed.fold.config("model = \"resnet20\"\nworkers = 3\n");
  feed.event(event_line(1, "view", view_more(0, "[1, 2]")));
  feed.steps(1, 4);
  feed.event(event_line(6, "lost", "\"member\": 2, \"detail\": \"it died\""));
  feed.event(event_line(6.1, "recovery", recovery_more(4, "2", 6.05, 50)));
  const std::string text = text_of(feed.fold);
  const std::string run = "run=\"a \\\"run\\\"\\n\"";
  for (const std::string& line : {
           "mayfly_steps_total{" + run + "} 4\n",
           "mayfly_samples_total{" + run + "} 400\n",
           "mayfly_step_seconds_bucket{" + run + ",le=\"0.3\"} 0\n",
           "mayfly_step_seconds_bucket{" + run + ",le=\"1\"} 4\n",
           "mayfly_step_seconds_sum{" + run + "} 4\n",
           "mayfly_recovery_seconds_bucket{" + run + ",cause=\"lost\",le=\"0.03\"} 0\n",
           "mayfly_recovery_seconds_bucket{" + run + ",cause=\"lost\",le=\"0.1\"} 1\n",
           "mayfly_member_ends_total{" + run + ",reason=\"lost\"} 1\n",
           "mayfly_workers{" + run + ",state=\"active\"} 1\n",
           "mayfly_workers_wanted{" + run + "} 3\n",
           "mayfly_job_phase{" + run + ",mayfly_job_phase=\"running\"} 1\n",
           "mayfly_redone_microbatches_total{" + run + "} 2\n",
           std::string("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n"),
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("mayfly_spent"))) << "without prices there is no money";
}

TEST(MetricsText, WorkersWantedAndTheAccuracyAreThoseOfNow) {
  Feed feed;
  feed.fold.config("workers = 4\n");
  begin(feed);
  feed.event(event_line(1, "scale", R"("workers": 2, "detail": "going to 2 workers")"));
  feed.event(event_line(2, "scale", R"("detail": "scale: from 4 to 2 workers")"));
  for (const auto& [step, top1] : {std::pair(20, "0.5"), std::pair(10, "0.25")}) {
    feed.event(event_line(30, "evaluated",
                          "\"step\": " + std::to_string(step) + ", \"test_top1\": " + top1));
  }
  EXPECT_THAT(text_of(feed.fold), HasSubstr("mayfly_workers_wanted{run=\"a \\\"run\\\"\\n\"} 2\n"));
  EXPECT_THAT(text_of(feed.fold),
              HasSubstr("mayfly_test_accuracy_ratio{run=\"a \\\"run\\\"\\n\"} 0.5\n"))
      << "of the newest step";
  begin(feed, 100);
  EXPECT_THAT(text_of(feed.fold), HasSubstr("mayfly_workers_wanted{run=\"a \\\"run\\\"\\n\"} 4\n"));
}

TEST(MetricsText, OpenMetricsNamesUnitsAndItsEnd) {
  Feed feed;
  begin(feed);
  feed.steps(1, 2);
  const std::string text = text_of(feed.fold, MetricsFormat::kOpenMetrics);
  for (const char* line :
       {"# TYPE mayfly_steps counter\n", "# TYPE mayfly_job info\n",
        "# TYPE mayfly_job_phase stateset\n",
        "# TYPE mayfly_step_seconds histogram\n# UNIT mayfly_step_seconds seconds\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_TRUE(text.ends_with("# EOF\n"));
  EXPECT_EQ(metrics_format_for("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"),
            MetricsFormat::kOpenMetrics);
  EXPECT_EQ(metrics_format_for("*/*"), MetricsFormat::kPrometheus);
}

TEST(MetricsText, StaysSmallHoweverManyAreLost) {
  Feed feed;
  begin(feed);
  feed.event(event_line(1, "view", view_more(0, "[1, 2]")));
  for (int i = 0; i < 1000; ++i) {
    const std::string id = std::to_string(10 + i);
    feed.event(
        event_line(2 + i, "connected", "\"member\": " + id + ", \"detail\": \"h" + id + "\""));
    feed.event(
        event_line(2 + i, "lost", "\"member\": " + id + ", \"detail\": \"reason " + id + "\""));
    std::string recovery = recovery_more(i, id, 2 + i, 50);
    recovery.replace(recovery.find("lost"), 4, "cause " + id);  // as in records that are not ours
    feed.event(event_line(2 + i, "recovery", recovery));
  }
  const std::string text = text_of(feed.fold);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 300);
}

}  // namespace
}  // namespace mayfly::observe
