"""What every program of the suite shares: settings, options, its log, its end, and what it tells its surroundings."""
