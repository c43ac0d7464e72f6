//go:build trivium_planted

package broker

import "os"

var planted = os.Getenv("TRIVIUM_PLANT")

var (
	noEpoch = planted == "noEpoch"
)
