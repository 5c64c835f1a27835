// Package version says what the programs of harp call themselves.
package version

import "github.com/harpcaller/harp"

// Software returns what they say of themselves to each other: harp/1.2.3.
func Software() string { return "harp/" + harp.Version() }
