// Command harp imports github.com/harpcaller/harp and does nothing.
package main

import _ "github.com/harpcaller/harp"

func main() {}
