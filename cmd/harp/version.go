package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: c.does(func(context.Context, []string) error {
			if c.format == formatJSON {
				return c.printObject(object{
					{"version", harp.Version()},
					{"revision", revision()},
					{"go", runtime.Version()},
					{"platform", runtime.GOOS + "/" + runtime.GOARCH},
				})
			}
			c.say("%s", versionText())
			return nil
		}),
	}
}

// versionText is what harp version and harp --version print.
func versionText() string {
	return fmt.Sprintf("harp %s (%s, %s/%s)", harp.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// revision is the commit the program was built from; "" if it does not say.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
