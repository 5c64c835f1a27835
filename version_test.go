package harp

import (
	"runtime/debug"
	"testing"
)

// TestVersion checks where the version comes from: the linker, or what Go recorded of the module, whether
// it is that of the program or one that the program uses.
func TestVersion(t *testing.T) {
	main := func(path, version string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: path, Version: version}}
	}
	uses := func(m debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main: debug.Module{Path: "example.org/app", Version: "v9.9.9"},
			Deps: []*debug.Module{{Path: "example.org/other", Version: "v8.8.8"}, &m},
		}
	}
	for name, c := range map[string]struct {
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		"a release":                 {"1.2.3", main(modulePath, "v1.2.4-0.20261127175406-6cedaf473a1f"), "1.2.3"},
		"a release, by its tag":     {"v1.2.3", nil, "1.2.3"},
		"go install of a version":   {"", main(modulePath, "v1.2.3"), "1.2.3"},
		"a checkout":                {"", main(modulePath, "v0.0.0-20261127175406-6cedaf473a1f+dirty"), "0.0.0-20261127175406-6cedaf473a1f+dirty"},
		"a build without a version": {"", main(modulePath, "(devel)"), "devel"},
		"a test":                    {"", main(modulePath, ""), "devel"},
		"nothing recorded":          {"", nil, "devel"},
		"inside another program":    {"", uses(debug.Module{Path: modulePath, Version: "v1.4.0"}), "1.4.0"},
		"a fork":                    {"", uses(debug.Module{Path: modulePath, Version: "v1.4.0", Replace: &debug.Module{Path: "example.org/harp", Version: "v1.4.1"}}), "1.4.1"},
		"a folder in its place":     {"", uses(debug.Module{Path: modulePath, Version: "v1.4.0", Replace: &debug.Module{Path: "../harp"}}), "devel"},
		"a program without it":      {"", main("example.org/app", "v9.9.9"), "devel"},
	} {
		if got := versionIn(c.linked, c.info); got != c.want {
			t.Errorf("%s: the version is %q, want %q", name, got, c.want)
		}
	}
	if Version() == "" {
		t.Error("this test has no version")
	}
}
