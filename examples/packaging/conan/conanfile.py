from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.system.package_manager import Apt


class Tapeformer(ConanFile):
    """`conan create examples/packaging/conan`. The libraries are the system's, as in Debian, and so are CMake and Ninja."""

    name = "tapeformer"
    version = "0.1.0"
    description = "Attention models, trained from scratch in C++"
    license = "MIT"
    topics = ("deep-learning", "transformer", "attention", "autograd")
    package_type = "library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False], "programs": [True, False], "cuda": [True, False]}
    default_options = {"shared": False, "programs": False, "cuda": False}

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("Tapeformer has been built on Linux only")
        check_min_cppstd(self, 17)

    def system_requirements(self):
        """Names missing packages; with `-c tools.system.package_manager:mode=install`, installs them."""
        packages = ["libxtensor-dev", "libxtensor-blas-dev", "libxsimd-dev", "libopenblas-openmp-dev", "libdnnl-dev",
                    "libsentencepiece-dev", "libutf8proc-dev", "libyaml-dev", "libpcre2-dev",
                    "nlohmann-json3-dev"]
        if self.options.programs:
            packages.append("libcli11-dev")
        Apt(self).install(packages)

    def export_sources(self):
        root = Path(self.recipe_folder).parents[2]
        for pattern in ("CMakeLists.txt", "LICENSE", "autograd/*", "nn/*", "optim/*", "data/*", "examples/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self, generator="Ninja")
        toolchain.cache_variables.update(
            TAPEFORMER_NATIVE=False,
            TAPEFORMER_TESTS=False,
            TAPEFORMER_PROGRAMS=bool(self.options.programs),
            TAPEFORMER_CUDA=bool(self.options.cuda),
        )
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, Path(self.package_folder) / "licenses")

    def package_info(self):
        # The installed CMake files say what is linked.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/tapeformer"]
