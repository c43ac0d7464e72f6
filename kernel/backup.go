package kernel

import "time"

// BackupOrder is what an operator asks a node for.
type BackupOrder struct {
	Dir  string // on the node's own file system, absolute, new or empty
	Rate int64  // bytes that are read in a second, 0 = no limit
}

// BackupReport is a backup that has been made.
type BackupReport struct {
	Dir     string
	Node    string // whose it is
	Begun   time.Time
	Took    time.Duration
	Files   int
	Bytes   int64    // of all files
	Linked  int64    // of those among them that share their bytes with the data directory
	Damaged []string // segments that were damaged or missing already, and are so in the backup
}
