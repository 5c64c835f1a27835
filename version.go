package harp

import (
	"runtime/debug"
	"strings"
	"sync"
)

// Version returns the version of harp that this program was built with, without a v: 1.2.3
// of a release. Of any other commit it is as Go names it, 1.2.4-0.20261127175406-6cedaf473a1f,
// with +dirty behind it if files differed from that commit; "devel" if the build did not
// record it, as that of a test does not.
func Version() string { return version() }

var version = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	return versionIn(linkedVersion, info)
})

// linkedVersion is the version that a build gives itself, as that of a release does:
// -ldflags "-X github.com/harpcaller/harp.linkedVersion=1.2.3".
var linkedVersion string

const (
	modulePath   = "github.com/harpcaller/harp"
	develVersion = "devel"
)

// versionIn returns the version that the linker was told or, without one, that Go recorded.
func versionIn(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return strings.TrimPrefix(linked, "v")
	}
	if info == nil {
		return develVersion
	}
	found := ""
	if info.Main.Path == modulePath {
		found = info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path != modulePath {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		found = m.Version
	}
	if found == "" || found == "(devel)" {
		return develVersion
	}
	return strings.TrimPrefix(found, "v")
}
