#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/npy.h>
#include <tapeformer/tests/data/temporary_file.h>

#include <xtensor/xnpy.hpp>

using namespace tapeformer;

namespace {

std::string npy_bytes(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes =
      "\x93NUMPY" + std::string{version, 0} +
      std::string{static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + header + data;
}

std::string header_of(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

std::string refusal(const std::string& bytes) {
  const TemporaryFile file(bytes);
  const std::string message = message_of<DataError>([&] { load_npy(file.path()); });
  const bool named = message.compare(0, file.path().size() + 2, file.path() + ": ") == 0;
  return named ? message.substr(file.path().size() + 2) : message;
}

}  // namespace

TEST_SUITE("autograd/npy") {
  TEST_CASE("every type and shape comes back as it was saved") {
    const TemporaryFile file("");
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{31}, Shape{3, 5}, Shape{0, 4}, Shape{1, 2, 3, 1, 2, 1, 1, 2}}) {
      for (const DType type : {DType::f32, DType::f64, DType::i32, DType::boolean}) {
        Tensor x = Tensor::zeros(shape, DType::f64);
        for (Index i = 0; i < x.elements(); ++i)
          x.data<double>()[i] = static_cast<double>(i % 2) * (1.5 + static_cast<double>(i));
        x = x.to(type);
        save_npy(file.path(), x);
        const Tensor y = load_npy(file.path());
        REQUIRE(y.describe() == x.describe());
        for (Index i = 0; i < x.elements(); ++i) CHECK(y.at(i) == x.at(i));
      }
    }
  }

  TEST_CASE("xtensor reads what we write, and we read what xtensor writes") {
    const TemporaryFile file("");
    save_npy(file.path(), Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
    CHECK(xt::load_npy<double>(file.path()) == xt::xarray<double>{{1, 2, 3}, {4, 5, 6}});
    xt::dump_npy(file.path(), xt::xarray<std::int32_t>{{7, 5}, {-8, 6}});
    const Tensor x = load_npy(file.path());
    CHECK(x.describe() == "i32[2,2]");
    CHECK(x.to_vector<std::int32_t>() == std::vector<std::int32_t>{7, 5, -8, 6});
  }

  TEST_CASE("later versions, any order of the keys and long headers are read") {
    const std::string data("\x01\x00\x00\x00\x02\x00\x00\x00", 8);
    std::string header = "{'shape':(2,),'fortran_order':True,'descr':'<i4'}";
    header += std::string(201 - header.size(), ' ') + "\n";  // its length has a low byte above 127
    const TemporaryFile file(npy_bytes(header, data, 2));
    CHECK(load_npy(file.path()).to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 2});
  }

  TEST_CASE("a file that cannot be used is refused with the reason") {
    CHECK(message_of<DataError>([] { load_npy("no/such/file.npy"); }) ==
          "no/such/file.npy: cannot be opened: No such file or directory");
    CHECK(refusal("") == "is not a NumPy file: it does not start with \\x93NUMPY");
    CHECK(refusal("PK\3\4 something else") == "is not a NumPy file: it does not start with \\x93NUMPY");
    CHECK(refusal("\x93NUMPY") == "the file ends inside its version");
    CHECK(refusal("\x93NUMPY\x09\x01zz") == "NumPy format version 9 is not known");
    CHECK(refusal(npy_bytes("{'descr'", "").substr(0, 14)) == "the file ends inside its header");
    CHECK(refusal(npy_bytes(std::string(5000, ' '), "")) ==
          "has a header of 5000 bytes; at most 4096 are read");
    CHECK(refusal(npy_bytes("{'descr': '<f4'}", "")) ==
          "has a header without a valid 'fortran_order': {'descr': '<f4'}");
    CHECK(refusal(npy_bytes(header_of("<f4", "False", "(-1,)"), "")).find("without a valid 'shape'") !=
          std::string::npos);
    CHECK(refusal(npy_bytes(header_of("<c8", "False", "(1,)"), std::string(8, '\0'))) ==
          "elements must be <f4, <f8, <i4 or |b1; got <c8; try numpy's astype");
    CHECK(refusal(npy_bytes(header_of("<f4", "True", "(2, 1)"), std::string(8, '\0'))) ==
          "is in Fortran order; try numpy.ascontiguousarray before saving");
    CHECK(refusal(npy_bytes(header_of("<f4", "False", "(3,)"), std::string(8, '\0'))) ==
          "f32[3] takes 12 bytes; the file has 8");
    CHECK(refusal(npy_bytes(header_of("<f4", "False", "(1,)"), std::string(8, '\0'))) ==
          "f32[1] takes 4 bytes; the file has 8");
    CHECK(refusal(npy_bytes(header_of("<f4", "False", "(4294967296, 4294967296)"), "")) ==
          "shape (4294967296, 4294967296) is too large");
    CHECK(refusal(npy_bytes(header_of("<f4", "False", "(99999999999999999999,)"), "")) ==
          "shape (99999999999999999999,) is too large");
    CHECK(refusal(npy_bytes(header_of("<f4", "False", "(1,1,1,1,1,1,1,1,1)"), "")) ==
          "shape (1,1,1,1,1,1,1,1,1) is too large");
    CHECK(refusal(npy_bytes(header_of("|b1", "False", "(1,)"), "\x02")) == "a bool must be 0 or 1");
  }

  TEST_CASE("a place that cannot be written is named") {
    CHECK(message_of<DataError>([] { save_npy("no/such/folder/x.npy", Tensor::zeros({1})); }) ==
          "no/such/folder/x.npy: cannot be written: No such file or directory");
  }
}
