//go:build trivium_planted

package metasvc

import "os"

var planted = os.Getenv("TRIVIUM_PLANT")

var (
	earlyAnswer      = planted == "earlyAnswer"
	unknownIsRefused = planted == "unknownIsRefused"
	foreignAnswer    = planted == "foreignAnswer"
	appliedTwice     = planted == "appliedTwice"
	staleRestore     = planted == "staleRestore"
)
