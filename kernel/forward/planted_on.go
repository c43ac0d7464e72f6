//go:build trivium_planted

package forward

import "os"

var planted = os.Getenv("TRIVIUM_PLANT")

var (
	lostIsDone = planted == "lostIsDone"
)
