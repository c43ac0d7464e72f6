//go:build trivium_planted

package edge

import "os"

var planted = os.Getenv("TRIVIUM_PLANT")

var (
	creditTwice = planted == "creditTwice"
	unfenced    = planted == "unfenced"
	lostAcks    = planted == "lostAcks"
)
