// Package version says what the programs of harp call themselves.
package version

import "github.com/harpcaller/harp"

// Software is what they say of themselves to each other.
const Software = "harp/" + harp.Version
