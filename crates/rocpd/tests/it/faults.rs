//! Kills, forks, full and frozen disks.
