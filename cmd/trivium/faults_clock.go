//go:build faults && steps

package main

import "time"

// The tag steps goes with a copy of package time that has TriviumStep
// (integration/harness makes it at build time).
func init() { setClock = time.TriviumStep }
