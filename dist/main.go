// Command dist makes what a release of harp consists of: for each platform an archive
// with the program, its man pages and its shell completion; for Linux also packages (deb
// and rpm) and an image; of each program a list of what it is made of (an SBOM); and the
// checksums of all. The same commit makes the same bytes, wherever it is built with the
// same Go.
//
// It is a module of its own, so that harp does not depend on what only makes packages.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root := flag.String("root", "..", "the `folder` of harp's module")
	out := flag.String("out", "../bin/dist", "the `folder` to write to; what is in it is deleted")
	only := flag.String("only", "", "the `platforms` to build for, such as linux/amd64,darwin/arm64; all if there are none")
	flag.Parse()
	if err := run(ctx, *root, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// run makes a release of the commit that is checked out in root.
func run(ctx context.Context, root, out, only string) error {
	chosen, err := choosePlatforms(only)
	if err != nil {
		return err
	}
	r, err := newRelease(ctx, root, out)
	if err != nil {
		return err
	}
	return r.make(ctx, chosen)
}

// platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

var platforms = []platform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

func choosePlatforms(only string) ([]platform, error) {
	if only == "" {
		return platforms, nil
	}
	var chosen []platform
	for name := range strings.SplitSeq(only, ",") {
		var found bool
		for _, p := range platforms {
			if p.String() == name {
				chosen, found = append(chosen, p), true
			}
		}
		if !found {
			return nil, fmt.Errorf("unknown platform %q; there are %v", name, platforms)
		}
	}
	return chosen, nil
}
