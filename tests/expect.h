#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <initializer_list>
#include <string>
#include <typeinfo>

#include "reel/core/error.h"

namespace reel {

/// The words of `expected` that `text` lacks, for a failure message.
inline std::string missing_words(const std::string& text, std::initializer_list<const char*> expected) {
  std::string missing;
  for (const char* word : expected)
    if (text.find(word) == std::string::npos) missing += std::string(missing.empty() ? "'" : ", '") + word + "'";
  return missing;
}

}  // namespace reel

/// The statement throws exactly this type of reel::Error, and its text has all of the given words.
#define EXPECT_THROW_WITH(statement, Type, ...)                                                              \
  try {                                                                                                      \
    statement;                                                                                               \
    ADD_FAILURE() << #statement " throws nothing";                                                           \
  } catch (const Type& error) {                                                                              \
    EXPECT_EQ(typeid(error), typeid(Type)) << error.what();                                                  \
    EXPECT_EQ(::reel::missing_words(error.what(), {__VA_ARGS__}), "") << "are missing in: " << error.what(); \
  } catch (const std::exception& error) {                                                                    \
    ADD_FAILURE() << #statement " throws another type: " << error.what();                                    \
  }                                                                                                          \
  static_assert(true)
