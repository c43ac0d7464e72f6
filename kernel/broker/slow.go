package broker

import "time"

// slowTime is how long a disk counts as slow after it has been so.
const slowTime = 30 * time.Second

// slowOnDisk is what other nodes are told, of the disk that the log is on.
func (n *Node) slowOnDisk() bool {
	log := n.paced.Load()
	return log != nil && log.Slow(slowTime)
}
