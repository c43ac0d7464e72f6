//go:build trivium_planted

package placement

import "os"

var planted = os.Getenv("TRIVIUM_PLANT")

var (
	staleSettlements = planted == "staleSettlements"
	wallClock        = planted == "wallClock"
	lostLetters      = planted == "lostLetters"
	unknownIsDone    = planted == "unknownIsDone"
	noLease          = planted == "noLease"
	staleTrims       = planted == "staleTrims"
)
